#include "kernels/cuda/common/views.h"

#include "base/check.h"

namespace sluice::kernels::cuda {

View view_of(const TensorView& view) {
  View v = blank<View>();
  v.data = view.data;
  v.n = view.dim(0);
  v.heads = view.rank == 3 ? view.dim(1) : 1;
  v.dim = view.dim(-1);
  v.stride_n = view.stride[0];
  v.stride_h = view.rank == 3 ? view.stride[1] : 0;
  SLUICE_CHECK(view.rank == 2 || view.rank == 3);
  v.type = view.dtype;
  SLUICE_CHECK((view.dtype == DType::BF16 || view.dtype == DType::F32) && view.device == Device::Cuda);
  SLUICE_CHECK(v.dim <= 1 || view.stride[static_cast<size_t>(view.rank) - 1] == 1);
  return v;
}

View packed(View like, DType type, void* data) {
  like.data = data;
  like.type = type;
  like.stride_h = like.dim;
  like.stride_n = like.heads * like.dim;
  return like;
}

View contiguous(void* data, DType type, int64_t n, int64_t dim) {
  View v = blank<View>();
  v.data = data;
  v.type = type;
  v.n = n;
  v.heads = 1;
  v.dim = dim;
  v.stride_n = dim;
  return v;
}

void* offset_columns(const View& view, int64_t columns) {
  return static_cast<std::byte*>(view.data) + columns * (view.type == DType::F32 ? 4 : 2);
}

const float* floats_of(const TensorView& view, int64_t count) {
  if (view.empty()) return nullptr;
  SLUICE_CHECK(view.dtype == DType::F32 && view.device == Device::Cuda && view.elements() == count);
  return static_cast<const float*>(view.data);
}

}  // namespace sluice::kernels::cuda
