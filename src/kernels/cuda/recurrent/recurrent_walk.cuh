// What kernels of layers with states share: the functions of gates, elements of views, and the walk along a sequence.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/recurrent/recurrent_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float softplus_of(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}
// Off by some 1e-6 of it, in a third of an exact division's instructions: convolutions of long steps have no more to do.
__device__ __forceinline__ float sigmoid_of(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <class T>
__device__ __forceinline__ float element(const View& v, int64_t row, int64_t column) {
  return widen(static_cast<const T*>(v.data)[row * v.stride_n + column]);
}
template <class T>
__device__ __forceinline__ void set_element(const View& v, int64_t row, int64_t column, float value) {
  static_cast<T*>(v.data)[row * v.stride_n + column] = narrow<T>(value);
}

// What a convolution makes of a channel's last kTaps rows, first tap to last.
template <int kTaps>
__device__ __forceinline__ float convolve(const float (&kernel)[kTaps], const float (&window)[kTaps],
                                          float bias, bool silu) {
  float sum = bias;
#pragma unroll
  for (int i = 0; i < kTaps; ++i) sum = fmaf(kernel[i], window[i], sum);
  return silu ? sum * sigmoid_of(sum) : sum;
}

// The tokens of a sequence between its saves.
struct Walk {
  int32_t begin, end;           // rows of the step
  int32_t save, last_save;      // of the list
  const float* from = nullptr;  // null: zeros

  __device__ Walk(const StatesView& s, int sequence)
      : begin(s.query_begin[sequence]),
        end(s.query_begin[sequence + 1]),
        save(s.save_begin[sequence]),
        last_save(s.save_begin[sequence + 1]) {
    if (s.from[sequence] >= 0) from = s.data + s.from[sequence] * s.stride;
  }
  // Where the state behind row `row` goes; null: nowhere, or nowhere else. Moves on to the next save.
  __device__ float* target(const StatesView& s, int32_t row) {
    if (save >= last_save || s.saves[2 * save] != row - begin + 1) return nullptr;
    return s.data + s.saves[2 * save++ + 1] * s.stride;
  }
};

inline dim3 blocks(int64_t x, int64_t y = 1, int64_t z = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

}  // namespace
}  // namespace sluice::kernels::cuda
