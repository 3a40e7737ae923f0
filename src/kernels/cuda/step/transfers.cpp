#include "kernels/cuda/step/transfers.h"

#include "base/check.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

Memory Transfers::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape, Device::Cuda);
  const auto bytes = static_cast<size_t>(view.bytes());
  DeviceBuffer memory = allocate_device(bytes);
  view.data = memory.get();
  check(cudaMemsetAsync(view.data, 0, bytes, step_.stream), "memset");
  return {view, std::shared_ptr<void>(std::move(memory))};
}

Weight Transfers::prepare(Weight weight, const UploadOptions& options) {
  if (!uploads_) uploads_.emplace(step_.stream);
  std::shared_ptr<const DeviceWeight> uploaded = upload_weight(weight, options, *uploads_, step_.stream);
  weight.parts.clear();
  for (const Matrix& matrix : uploaded->matrices) {
    TensorView part = TensorView::contiguous(const_cast<void*>(matrix.data), matrix.type,
                                             {matrix.rows, matrix.cols}, Device::Cuda);
    if (matrix.type == DType::BF16) part.stride[0] = matrix.row_bytes / 2;
    if (matrix.scales != nullptr) part.stride[0] = matrix.row_bytes;
    weight.parts.push_back(part);
  }
  if (uploaded->bias != nullptr) {
    weight.bias =
        TensorView::contiguous(const_cast<float*>(uploaded->bias), DType::F32, {weight.rows}, Device::Cuda);
  }
  if (uploaded->order == nullptr) weight.orders.clear();
  if (uploaded->order != nullptr) weight.orders.assign(weight.parts.size(), weight.orders.front());
  weight.packed = std::move(uploaded);
  return weight;
}

Memory Transfers::upload(TensorView host) {
  SLUICE_CHECK(host.is_contiguous() && host.device == Device::Cpu);
  const auto bytes = static_cast<size_t>(host.bytes());
  DeviceBuffer memory = allocate_device(bytes);
  check(cudaMemcpyAsync(memory.get(), host.data, bytes, cudaMemcpyHostToDevice, step_.stream), "upload");
  check(cudaStreamSynchronize(step_.stream), "upload");
  host.data = memory.get();
  host.device = Device::Cuda;
  return {host, std::shared_ptr<void>(std::move(memory))};
}

void Transfers::copy_floats(float* out, TensorView x) {
  step_.flush();
  const size_t bytes = static_cast<size_t>(x.elements()) * sizeof(float);
  if (x.dtype == DType::BF16 || !x.is_contiguous()) {
    ConvertParams p = blank<ConvertParams>();
    p.x = view_of(x);
    p.out = packed(p.x, DType::F32, scratch_.at_least(bytes));
    step_.issue(launch_convert, p);
    x.data = p.out.data;
  } else {
    SLUICE_CHECK(x.dtype == DType::F32);
  }
  check(cudaMemcpyAsync(out, x.data, bytes, cudaMemcpyDeviceToHost, step_.stream), "download");
}

void Transfers::download(TensorView out, TensorView x) {
  SLUICE_CHECK(out.is_contiguous() && out.elements() == x.elements());
  if (x.elements() == 0) return;
  step_.flush();
  if (out.dtype == DType::F32) {
    copy_floats(static_cast<float*>(out.data), x);
  } else {
    SLUICE_CHECK(x.dtype == out.dtype && x.is_contiguous());
    check(cudaMemcpyAsync(out.data, x.data, static_cast<size_t>(out.bytes()), cudaMemcpyDeviceToHost,
                          step_.stream),
          "download");
  }
  check(cudaStreamSynchronize(step_.stream), "download");
}

}  // namespace sluice::kernels::cuda
