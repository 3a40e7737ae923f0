// What back-ends on host memory share: how rows of views are found, and the operations that only move bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "kernels/backend.h"

namespace sluice::kernels {

// A view of rank 1 to 4 as rows of its last dimension.
inline int64_t row_count(const TensorView& view) {
  int64_t count = 1;
  for (int i = 0; i + 1 < view.rank; ++i) count *= view.dim(i);
  return count;
}

// Pointer to row `index`, counted over all leading dimensions. Plain types only.
template <class T>
T* row_at(const TensorView& view, int64_t index) {
  T* pointer = static_cast<T*>(view.data);
  for (int i = view.rank - 2; i >= 0; --i) {
    pointer += index % view.dim(i) * view.stride[static_cast<size_t>(i)];
    index /= view.dim(i);
  }
  return pointer;
}

// View [n, width] of head `head` of a view [n, heads, width].
TensorView head_of(const TensorView& view, int64_t head);

// Address and type of row `row` of a weight of one or more parts.
struct WeightRow {
  DType type;
  const void* data;
};
WeightRow weight_row(const Weight& weight, int64_t row);

// Where a sequence's key or value of one position and head lies.
inline int64_t kv_block(const RaggedBatch::BlockTable& table, int sequence, int64_t block) {
  return table.blocks[static_cast<size_t>(int64_t{sequence} * table.width + block)];
}

// Whether back-ends on host memory keep KV in this type.
inline bool is_kv(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16 || type == DType::I8;
}

Memory allocate_host(DType dtype, std::initializer_list<int64_t> shape);
Memory upload_to_host(TensorView host);
void copy_rows(TensorView out, TensorView x);
void gather_host_rows(TensorView out, TensorView x, std::span<const int32_t> rows);
void copy_kv_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves);

}  // namespace sluice::kernels
