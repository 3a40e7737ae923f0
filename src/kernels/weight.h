// A matrix of a model as the back-ends see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace sluice::kernels {

// A tensor of a file, or the slice of one whose first dimension counts experts.
struct StoredTensor {
  std::string name;
  int slice = 0;
};

// Column k of a matrix is multiplied with element (*order)[k] of x: each of them once. Null: with element k.
using ColumnOrder = std::shared_ptr<const std::vector<int32_t>>;

// Rows stacked from one or more stored tensors, each in its own type, so that q, k and v (or gate and up) are one
// GEMM wherever they lie in the file. The memory belongs to the model (usually a mapped file).
struct Weight {
  std::vector<TensorView> parts;  // each [part rows, cols], contiguous; data needs no alignment
  int64_t rows = 0;               // sum over parts
  int64_t cols = 0;
  bool table = false;                  // rows are looked up (Backend::embed): kept as exact as they are
  TensorView bias;                     // optional, f32 [rows]
  std::shared_ptr<const void> packed;  // a back-end's own form, made by Backend::prepare
  bool packed_whole = false;           // of all parts, which are not read any more
  bool listed = false;                 // one of a list that is multiplied at once: experts, heads
  bool joined = false;                 // of parts that only have their input in common
  std::vector<StoredTensor> stored;    // that the rows are from; empty: not said
  std::vector<ColumnOrder> orders;     // of each part; empty: none has one
  // Where parts differ in their order: those that share one, prepared, in the place of the whole.
  std::vector<Weight> runs;

  bool empty() const { return parts.empty(); }
};

// Of a prepared weight: whether its back-end goes on reading the part that lay at `data` in host memory. Where the packed form is
// not of all parts it has those of block types.
inline bool reads(const Weight& weight, const void* data) {
  for (const Weight& run : weight.runs)
    if (reads(run, data)) return true;
  if (!weight.runs.empty()) return false;
  for (const TensorView& part : weight.parts) {
    if (part.device != Device::Cpu || part.data != data) continue;
    if (weight.packed == nullptr || weight.table) return true;
    if (!weight.packed_whole && !is_block(part.dtype)) return true;
  }
  return false;
}

}  // namespace sluice::kernels
