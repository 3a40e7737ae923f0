#include "kernels/host.h"

#include <cstring>

#include "tensor/blocks.h"

namespace sluice::kernels {

TensorView head_of(const TensorView& view, int64_t head) {
  SLUICE_CHECK_EQ(int{view.rank}, 3);
  TensorView one = view;
  one.rank = 2;
  one.data = view.at<std::byte>() + head * view.stride[1] * info(view.dtype).block_bytes;
  one.shape = {view.shape[0], view.shape[2], 0, 0};
  one.stride = {view.stride[0], view.stride[2], 0, 0};
  return one;
}

WeightRow weight_row(const Weight& weight, int64_t row) {
  for (const TensorView& part : weight.parts) {
    if (row < part.dim(0)) {
      return {part.dtype,
              static_cast<const std::byte*>(part.data) + row * row_bytes(part.dtype, weight.cols)};
    }
    row -= part.dim(0);
  }
  SLUICE_CHECK(!"row lies within the weight");
  return {};
}

Memory allocate_host(DType dtype, std::initializer_list<int64_t> shape) {
  auto tensor = std::make_shared<HostTensor>(HostTensor::make(dtype, shape));
  const TensorView view = tensor->view;
  return {view, std::move(tensor)};
}

Memory upload_to_host(TensorView host) {
  SLUICE_CHECK(host.is_contiguous());
  Memory memory = allocate_host(DType::F32, {host.elements()});
  dequantize_row(host.dtype, host.data, memory.view.at<float>(), host.elements());
  void* data = memory.view.data;
  memory.view = host;
  memory.view.data = data;
  memory.view.dtype = DType::F32;
  return memory;
}

void copy_rows(TensorView out, TensorView x) {
  SLUICE_CHECK_EQ(out.elements(), x.elements());
  SLUICE_CHECK_EQ(out.dim(-1), x.dim(-1));
  const auto bytes = static_cast<size_t>(x.dim(-1)) * sizeof(float);
  for (int64_t i = 0; i < row_count(x); ++i) std::memcpy(row_at<float>(out, i), row_at<float>(x, i), bytes);
}

void gather_host_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  SLUICE_CHECK_EQ(out.dim(0), static_cast<int64_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto to = static_cast<int64_t>(i);
    copy_rows(out.rows(to, to + 1), x.rows(rows[i], rows[i] + 1));
  }
}

namespace {

void copy_block(const TensorView& cache, int64_t from, int64_t to) {
  if (cache.empty()) return;
  const auto element = static_cast<size_t>(info(cache.dtype).block_bytes);
  const TensorView source = cache.rows(from, from + 1);
  const TensorView target = cache.rows(to, to + 1);
  const auto bytes = static_cast<size_t>(cache.dim(-1)) * element;
  const auto row = [element](const TensorView& view, int64_t slot, int64_t head) {
    const int64_t offset = slot * view.stride[1] + (view.rank == 4 ? head * view.stride[2] : 0);
    return static_cast<std::byte*>(view.data) + offset * static_cast<int64_t>(element);
  };
  const int64_t heads = cache.rank == 4 ? cache.dim(2) : 1;
  for (int64_t slot = 0; slot < cache.dim(1); ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      std::memcpy(row(target, slot, head), row(source, slot, head), bytes);
    }
  }
}

}  // namespace

void copy_kv_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) {
  for (const auto& [from, to] : moves) {
    for (const TensorView& cache : {kv.k, kv.v, kv.k_scales, kv.v_scales}) {
      copy_block(cache, from.value, to.value);
    }
  }
}

}  // namespace sluice::kernels
