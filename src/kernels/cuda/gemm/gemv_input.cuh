// How blocks of gemv.cu bring their token to shared memory.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {

// The gains of the pieces of x that a thread norms, on their way while the kernel in front still runs. Held: pieces of a
// thread; 0: x is not normed.
template <int Held, int Warps>
struct InputNorms {
  float4 gains[Held > 0 ? 2 * Held : 1];

  __device__ __forceinline__ explicit InputNorms(const GemmParams& p) {
#pragma unroll
    for (int h = 0; h < Held; ++h) {
      const int64_t i = h * Warps * 32 + threadIdx.x;
      const bool there = p.norm.gain != nullptr && i * 8 < p.weight.cols;
      const auto* gain = reinterpret_cast<const float4*>(p.norm.gain) + i * 2;
      gains[2 * h] = there ? __ldg(gain) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
      gains[2 * h + 1] = there ? __ldg(gain + 1) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    }
  }

  // x to shared memory.
  __device__ __forceinline__ void share(uint4* shared, const GemmParams& p) const {
    const int pieces = static_cast<int>(p.weight.cols / 8);
    const bf16* x = static_cast<const bf16*>(p.x.data);
    if constexpr (Held == 0) {
      for (int i = threadIdx.x; i < pieces; i += Warps * 32) shared[i] = load_activation(x + i * 8);
    } else {
      share_normed(shared, p, x, pieces);
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void share_normed(uint4* shared, const GemmParams& p, const bf16* x,
                                               int pieces) const {
    __shared__ float sums[Warps];
    uint4 held[Held];
    float squares = 0.0f;
#pragma unroll
    for (int h = 0; h < Held; ++h) {
      const int i = h * Warps * 32 + threadIdx.x;
      held[h] = i < pieces ? load_activation(x + i * 8) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int h = 0; h < Held; ++h) {
      float f[8];
      unpack8(held[h], f);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += f[j] * f[j];
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < Warps; ++w) total += sums[w];
    const float factor = rsqrtf(total / static_cast<float>(p.x.dim) + p.norm.eps);
#pragma unroll
    for (int h = 0; h < Held; ++h) {
      const int i = h * Warps * 32 + threadIdx.x;
      if (i >= pieces) continue;
      const float4 low = gains[2 * h], high = gains[2 * h + 1];
      float f[8];
      unpack8(held[h], f);
      f[0] *= factor * low.x, f[1] *= factor * low.y, f[2] *= factor * low.z, f[3] *= factor * low.w;
      f[4] *= factor * high.x, f[5] *= factor * high.y, f[6] *= factor * high.z, f[7] *= factor * high.w;
      shared[i] = pack8(f);
      if (blockIdx.x == 0) reinterpret_cast<uint4*>(p.norm.out)[i] = shared[i];
    }
  }
};

}  // namespace sluice::kernels::cuda
