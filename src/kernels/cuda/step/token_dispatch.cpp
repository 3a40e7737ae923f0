#include "kernels/cuda/step/token_dispatch.h"

#include "base/check.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/common/weights.h"

namespace sluice::kernels::cuda {

namespace {

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

void TokenDispatch::norm(NormParams params) {
  constexpr int64_t kMany = 33;  // fewer are multiplied as they are
  params.fixed_order = step_.deterministic ? 1 : 0;
  if (step_.rounds_tokens && params.x.n >= kMany && norm_rounds(params)) return step_.defer_many(params);
  step_.issue(launch_norm, params);
}

void TokenDispatch::rms_norm(TensorView out, TensorView x, TensorView gain, float eps) {
  const NormParams p = norm_params(out, x, gain, eps);
  const bool one = p.x.n == 1 && p.x.heads == 1 && p.x.type == DType::BF16 && p.out.type == DType::BF16;
  const bool apart = p.out.data != p.x.data && aligned_tokens(p.x) && aligned_tokens(p.out) &&
                     reinterpret_cast<uintptr_t>(p.gain) % 16 == 0;
  if (one && apart && step_.mode != Mode::Eager && !step_.deterministic) return step_.defer(p);
  norm(p);
}

void TokenDispatch::layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) {
  NormParams p = norm_params(out, x, gain, eps);
  p.kind = NormKind::Layer;
  p.bias = floats_of(bias, x.dim(-1));
  norm(p);
}

bool TokenDispatch::add_down(const Residual& x) {
  if (x.b_scale != 1.0f || x.sum.dtype != DType::BF16) return false;
  std::optional<FewExpertsParams> down = step_.take_down(view_of(x.b));
  if (!down) return false;
  down->out = view_of(x.sum);
  down->added = 1;
  step_.issue(launch_few_down_bf16, *down);
  return true;
}

void TokenDispatch::add_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) {
  if (add_down(x)) return rms_norm(out, x.sum, gain.gain, gain.eps);
  NormParams p = norm_params(out, x.sum, gain.gain, gain.eps);
  p.add = view_of(x.b);
  if (p.add.n == 1) p.add.stride_n = 0;
  p.scale = x.b_scale;
  if (norm_mixes(p)) p.mixed = step_.take_combine(p.add).value_or(blank<CombineParams>());
  norm(p);
}

bool TokenDispatch::add_normed(TensorView out, const Residual& x, const RmsGain& branch,
                               const RmsGain& norm) {
  AddNormedParams p = blank<AddNormedParams>();
  p.sum = view_of(x.sum);
  p.branch = view_of(x.b);
  p.scale = x.b_scale;
  p.sum_scale = x.sum_scale;
  p.branch_gain = floats_of(branch.gain, x.sum.dim(-1));
  p.branch_eps = branch.eps;
  if (!out.empty()) {
    p.out = view_of(out);
    p.gain = floats_of(norm.gain, x.sum.dim(-1));
    p.eps = norm.eps;
  }
  if (!adds_normed(p)) return false;
  step_.issue(launch_add_normed, p);
  return true;
}

void TokenDispatch::add(TensorView out, TensorView a, TensorView b, float b_scale) {
  PointwiseParams p = pointwise_params(Pointwise::Add, out, a, b_scale);
  p.b = view_of(b);
  if (p.b.n == 1) p.b.stride_n = 0;
  pointwise(p);
}

void TokenDispatch::gate_rows(TensorView x, TensorView gate, Activation activation) {
  PointwiseParams p = pointwise_params(Pointwise::GateRows, x, x, 0.0f);
  p.b = view_of(gate);
  p.activation = static_cast<int32_t>(activation);
  pointwise(p);
}

void TokenDispatch::map(Pointwise operation, TensorView out, TensorView x, float factor) {
  pointwise(pointwise_params(operation, out, x, factor));
}

void TokenDispatch::activate(TensorView out, TensorView x, Activation activation) {
  PointwiseParams p = pointwise_params(Pointwise::Activate, out, x, 0.0f);
  p.activation = static_cast<int32_t>(activation);
  pointwise(p);
}

void TokenDispatch::gated(TensorView out, TensorView gate_up, Activation activation, bool put_off) {
  const int64_t inner = out.dim(1);
  SLUICE_CHECK_EQ(gate_up.dim(1), 2 * inner);
  PointwiseParams p = pointwise_params(Pointwise::Gated, out, gate_up.columns(0, inner), 0.0f);
  p.b = view_of(gate_up.columns(inner, 2 * inner));
  p.activation = static_cast<int32_t>(activation);
  const bool whole = p.out.type == DType::BF16 && aligned_tokens(p.a) && aligned_tokens(p.b);
  if (put_off && whole) return step_.defer_gate(p);
  pointwise(p);
}

void TokenDispatch::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  GatherParams p = blank<GatherParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  SLUICE_CHECK_EQ(p.out.n, static_cast<int64_t>(rows.size()));
  p.rows = step_.put(kTokenBuffer, rows);
  step_.issue(launch_gather, p);
}

void TokenDispatch::embed(TensorView out, const Weight& table, std::span<const int32_t> ids) {
  SLUICE_CHECK_EQ(out.dim(0), static_cast<int64_t>(ids.size()));
  const int32_t* staged = step_.put(kTokenBuffer, ids);
  embed_device(out, table,
               TensorView::contiguous(const_cast<int32_t*>(staged), DType::I32, {out.dim(0)}, Device::Cuda));
}

void TokenDispatch::embed_device(TensorView out, const Weight& table, TensorView ids) {
  const DeviceWeight& weight = device_weight(table);
  SLUICE_CHECK_EQ(weight.matrices.size(), size_t{1});
  EmbedParams p = blank<EmbedParams>();
  p.out = view_of(out);
  p.table = weight.matrices[0];
  p.ids = static_cast<const int32_t*>(ids.data);
  p.slots = slots_;
  SLUICE_CHECK_EQ(p.out.dim, p.table.cols);
  step_.issue(launch_embed, p);
}

}  // namespace sluice::kernels::cuda
