// A norm by rms that the GEMMs around it make in two halves: the one in front stores its sums times the gain and what their
// squares add up to, the one behind multiplies its results by what that makes of each token.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {

// Whether a GEMM may have its `factors`, and its `sum` with squares of `columns` columns each.
inline bool norm_factors_fit(const GemmParams& p) {
  return p.factors.squares == nullptr || (aligned16(p.factors.squares) && p.factors.parts % 4 == 0);
}
inline bool normed_sum_fits(const GemmParams& p, int64_t columns) {
  return p.sum.out == nullptr ||
         (p.added != 0 && p.bias == nullptr && aligned16(p.sum.out) && aligned16(p.sum.gain) &&
          p.sum.out_stride % 8 == 0 && p.out.type == DType::BF16 && p.out.dim % (4 * columns) == 0);
}

__device__ __forceinline__ void prefetch_to_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Four floats that another kernel wrote.
__device__ __forceinline__ float4 load_floats(const float* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0,%1,%2,%3},[%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// Factors of tokens first, first + step and so on, of which `last` is none: eight neighbouring lanes give the same
// `first`, and all get the factors.
template <int kTokens>
__device__ __forceinline__ void load_factors(const NormFactors& f, int first, int step, int last,
                                             float (&factors)[kTokens]) {
  const int lane = threadIdx.x % 8;
#pragma unroll
  for (float& sum : factors) sum = 0.0f;
#pragma unroll 4
  for (int part = 4 * lane; part < f.parts; part += 32) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = first + i * step;
      if (token >= last) continue;
      const float4 v = load_floats(f.squares + int64_t{token} * f.parts + part);
      factors[i] += (v.x + v.y) + (v.z + v.w);
    }
  }
  const unsigned together = 0xffu << (threadIdx.x % 32 & 24);
#pragma unroll
  for (float& sum : factors) {
#pragma unroll
    for (int o = 4; o > 0; o >>= 1) sum += __shfl_xor_sync(together, sum, o);
    sum = rsqrtf(sum * f.scale + f.eps);
  }
}

}  // namespace sluice::kernels::cuda
