// Matrices of small integers with a scale, and perhaps a zero point, for each group of columns, as one tensor that kernels read.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace sluice::models {

// A module's matrix as kernels read it.
struct QuantizedMatrix {
  HostTensor tensor;             // [rows, cols]
  std::vector<int32_t> columns;  // column k is column columns[k] of the module's; empty: column k
};

// weight[n, k] = scales[n, g] * (code[n, k] - zeros[n, g]), where g = order[k], or k / group without an order.
struct GroupedMatrix {
  int64_t rows = 0, cols = 0;
  int64_t group = 0;           // columns that share a scale
  int64_t groups = 0;          // of a row
  int bits = 4;                // codes are below 1 << bits
  std::vector<float> scales;   // [rows, groups]
  std::vector<uint8_t> zeros;  // [rows, groups]; empty: 1 << (bits - 1)
  std::vector<int32_t> order;  // [cols] below groups; empty: groups lie one after the other
  // Codes of rows [first, first + count), the first a multiple of 32, to `out` [count, cols]; called by several threads.
  using Fill = FunctionRef<void(int64_t first, int64_t count, uint8_t* out)>;

  int64_t group_at(int64_t col) const {
    return order.empty() ? col / group : order[static_cast<size_t>(col)];
  }
};

// Whether f16 holds the scales of a matrix: normal numbers, and of smaller ones those whose rounding is small beside the largest.
bool fit_halves(std::span<const float> scales);

// Q4_0, Q4_Z or Q8_0, which hold the same values where the scales are f16, with the columns of a group side by side; F16 or F32
// where groups are cut otherwise than in pieces of 32 columns, or scales are too small or too large.
QuantizedMatrix make_grouped(const GroupedMatrix& matrix, GroupedMatrix::Fill fill);

// Any matrix by its values: F16, or F32 where they do not fit. `values` is called twice for each row, by several threads.
HostTensor make_plain(int64_t rows, int64_t cols, FunctionRef<void(int64_t row, float* out)> values);

// A matrix whose column k is column columns[k] of a plain one, as that.
HostTensor plain_in_order_of_x(const TensorView& matrix, const std::vector<int32_t>& columns);

}  // namespace sluice::models
