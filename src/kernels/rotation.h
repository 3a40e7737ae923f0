// Rows of I8 in KV caches are multiplied by an orthonormal Hadamard matrix before they are rounded, and queries too: what one
// channel of a head holds is spread over all, so that a channel far above the others does not decide the step that all are
// rounded by. Scores stay the same; what attention sums is multiplied once more, which undoes it: the matrix is symmetric.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace sluice::kernels {

// Columns of a row that one matrix takes, powers of two that divide the row; 1: rows stay as they are.
struct KvRotation {
  int64_t key = 1;  // of queries too
  int64_t value = 1;
};

// Values that are the first part of the keys end where a matrix does.
inline KvRotation rotation_of(const PagedKv& kv) {
  const auto largest_power = [](int64_t width) { return width & -width; };
  const int64_t key_dim = kv.k.dim(3), value_dim = kv.v.dim(3);
  if (kv.k.dtype == DType::I8 && kv.k.data == kv.v.data) {
    const int64_t shared = largest_power(key_dim | value_dim);
    return {shared, shared};
  }
  return {kv.k.dtype == DType::I8 ? largest_power(key_dim) : 1,
          kv.v.dtype == DType::I8 ? largest_power(value_dim) : 1};
}

}  // namespace sluice::kernels
