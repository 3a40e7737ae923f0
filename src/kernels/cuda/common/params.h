// What the host hands to each kernel: plain structs, and one function per kernel family that launches it on a
// stream. Structs are filled through blank<>(), so that equal arguments have equal bytes: a step is
// recognised by them.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/gemm/quantized/units.h"

struct CUstream_st;

namespace sluice::kernels::cuda {

using Stream = CUstream_st*;

template <class P>
P blank() {
  P params;
  std::memset(static_cast<void*>(&params), 0, sizeof params);
  return params;
}

// Activations [n, heads, dim] with the last dimension contiguous, strides in elements. The views of one operation have
// the same type unless said otherwise; where a kernel takes bf16 only, its ..._fits says so.
struct View {
  void* data;
  int64_t n, heads, dim;
  int64_t stride_n, stride_h;
  DType type;  // BF16 or F32
};
// Whether every row is whole pieces of eight elements, each at a multiple of 16 bytes.
inline bool aligned_tokens(const View& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride_n % 8 == 0 && x.dim % 8 == 0;
}

// A stored matrix: `rows` rows of `row_bytes` bytes, of BF16 (padded with zeros to a multiple of 8 columns),
// a block type as it is stored or in units (row_bytes: a sixteenth of a row of units), or scaled fp8: F8_E4M3 with `scales`,
// where a row starts with kFp8Header bytes whose first four hold its scale again as f32.
struct Matrix {
  const void* data;
  int64_t rows, cols, row_bytes;
  const float* scales;  // [rows] of scaled fp8, else null
  DType type;
  Units units;
};
inline constexpr int64_t kFp8Header = 128;
inline constexpr float kFp8Largest = 448.0f;

}  // namespace sluice::kernels::cuda
