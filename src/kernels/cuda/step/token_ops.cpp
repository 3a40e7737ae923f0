// Token-wise operations: norms, element-wise, rows.
#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {

const float* floats_of(const TensorView& view, int64_t count) {
  if (view.empty()) return nullptr;
  SLUICE_CHECK(view.dtype == DType::F32 && view.device == Device::Cuda && view.elements() == count);
  return static_cast<const float*>(view.data);
}

NormParams norm_params(const TensorView& out, const TensorView& x, const TensorView& gain, float eps) {
  NormParams p = blank<NormParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  p.gain = floats_of(gain, x.dim(-1));
  p.eps = eps;
  return p;
}

PointwiseParams pointwise_params(Pointwise operation, const TensorView& out, const TensorView& a,
                                 float factor) {
  PointwiseParams p = blank<PointwiseParams>();
  p.operation = operation;
  p.out = view_of(out);
  p.a = view_of(a);
  p.factor = factor;
  return p;
}

}  // namespace

void CudaBackendImpl::norm(NormParams params) {
  params.fixed_order = deterministic_ ? 1 : 0;
  issue(launch_norm, params);
}

void CudaBackendImpl::rms_norm(TensorView out, TensorView x, TensorView gain, float eps) {
  norm(norm_params(out, x, gain, eps));
}

void CudaBackendImpl::layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) {
  NormParams p = norm_params(out, x, gain, eps);
  p.kind = NormKind::Layer;
  p.bias = floats_of(bias, x.dim(-1));
  norm(p);
}

void CudaBackendImpl::add_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) {
  NormParams p = norm_params(out, x.sum, gain.gain, gain.eps);
  p.add = view_of(x.b);
  if (p.add.n == 1) p.add.stride_n = 0;
  p.scale = x.b_scale;
  norm(p);
}

void CudaBackendImpl::add(TensorView out, TensorView a, TensorView b, float b_scale) {
  PointwiseParams p = pointwise_params(Pointwise::Add, out, a, b_scale);
  p.b = view_of(b);
  if (p.b.n == 1) p.b.stride_n = 0;
  pointwise(p);
}

void CudaBackendImpl::copy(TensorView out, TensorView x) {
  pointwise(pointwise_params(Pointwise::Copy, out, x, 0.0f));
}

void CudaBackendImpl::gate_rows(TensorView x, TensorView gate) {
  PointwiseParams p = pointwise_params(Pointwise::GateRows, x, x, 0.0f);
  p.b = view_of(gate);
  pointwise(p);
}

void CudaBackendImpl::scale(TensorView x, float factor) {
  pointwise(pointwise_params(Pointwise::Scale, x, x, factor));
}

void CudaBackendImpl::softcap(TensorView x, float cap) {
  pointwise(pointwise_params(Pointwise::Softcap, x, x, cap));
}

void CudaBackendImpl::clamp(TensorView x, float limit) {
  pointwise(pointwise_params(Pointwise::Clamp, x, x, limit));
}

void CudaBackendImpl::activate(TensorView out, TensorView x, Activation activation) {
  PointwiseParams p = pointwise_params(Pointwise::Activate, out, x, 0.0f);
  p.activation = static_cast<int32_t>(activation);
  pointwise(p);
}

void CudaBackendImpl::gated(TensorView out, TensorView gate_up, Activation activation) {
  const int64_t inner = out.dim(1);
  SLUICE_CHECK_EQ(gate_up.dim(1), 2 * inner);
  PointwiseParams p = pointwise_params(Pointwise::Gated, out, gate_up.columns(0, inner), 0.0f);
  p.b = view_of(gate_up.columns(inner, 2 * inner));
  p.activation = static_cast<int32_t>(activation);
  pointwise(p);
}

void CudaBackendImpl::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  GatherParams p = blank<GatherParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  SLUICE_CHECK_EQ(p.out.n, static_cast<int64_t>(rows.size()));
  p.rows = staging_->put(0, rows, mode_);
  issue(launch_gather, p);
}

void CudaBackendImpl::embed(TensorView out, const Weight& table, std::span<const int32_t> ids) {
  SLUICE_CHECK_EQ(out.dim(0), static_cast<int64_t>(ids.size()));
  const int32_t* staged = staging_->put(0, ids, mode_);
  embed_device(out, table,
               TensorView::contiguous(const_cast<int32_t*>(staged), DType::I32, {out.dim(0)}, Device::Cuda));
}

void CudaBackendImpl::embed_device(TensorView out, const Weight& table, TensorView ids) {
  const DeviceWeight& weight = device_weight(table);
  SLUICE_CHECK_EQ(weight.matrices.size(), size_t{1});
  EmbedParams p = blank<EmbedParams>();
  p.out = view_of(out);
  p.table = weight.matrices[0];
  p.ids = static_cast<const int32_t*>(ids.data);
  p.slots = static_cast<const int32_t*>(slots_.get());
  SLUICE_CHECK_EQ(p.out.dim, p.table.cols);
  issue(launch_embed, p);
}

void CudaBackendImpl::argmax(TensorView ids, TensorView x) {
  ArgmaxParams p = blank<ArgmaxParams>();
  p.x = view_of(x);
  SLUICE_CHECK(ids.dtype == DType::I32 && ids.is_contiguous() && ids.elements() == p.x.n);
  p.ids = static_cast<int32_t*>(ids.data);
  if (p.x.n > argmax_rows_) {
    const auto bytes = static_cast<size_t>(p.x.n) * sizeof *p.keys;
    argmax_keys_ = allocate_device(bytes);
    argmax_rows_ = p.x.n;
    check(cudaMemsetAsync(argmax_keys_.get(), 0, bytes, stream_), "memset");
    check(cudaStreamSynchronize(stream_), "memset");
  }
  p.keys = static_cast<unsigned long long*>(argmax_keys_.get());
  issue(launch_argmax, p);
}

}  // namespace sluice::kernels::cuda
