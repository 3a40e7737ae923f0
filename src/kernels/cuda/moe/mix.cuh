// The weighted sum of what a token's experts gave.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {

// Eight elements of it from element i on, in the order of the slots. Places and weights before rows: all of either are on
// their way at once.
template <class T, bool Vector>
__device__ __forceinline__ void mix8(const CombineParams& p, int64_t token, int64_t i, float (&sums)[8]) {
  constexpr bool kPieces = Vector && sizeof(T) == sizeof(bf16);
  constexpr int kTogether = kPieces ? 8 : 4;
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  for (int first = 0; first < p.used; first += kTogether) {
    int32_t rows[kTogether];
    float weights[kTogether];
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
      const int slot = min(first + s, p.used - 1);
      rows[s] = p.place[token * p.used + slot];
      weights[s] = p.weights != nullptr ? p.weights[token * p.weights_stride + slot] : 1.0f;
      if (first + s >= p.used) weights[s] = 0.0f;
    }
    const T* x = static_cast<const T*>(p.x.data) + i;
    if constexpr (kPieces) {
      uint4 pieces[kTogether];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) pieces[s] = load_activation(x + rows[s] * p.x.stride_n);
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        float f[8];
        unpack8(pieces[s], f);
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[j] += weights[s] * f[j];
      }
    } else {
      float f[kTogether][8];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) load8<Vector>(x + rows[s] * p.x.stride_n, p.out.dim - i, f[s]);
#pragma unroll
      for (int s = 0; s < kTogether; ++s)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[j] += weights[s] * f[s][j];
    }
  }
}

}  // namespace sluice::kernels::cuda
