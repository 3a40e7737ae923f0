// The warp of units_few.cuh that makes results of sums.
#pragma once

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/gemm/quantized/units_few_shape.cuh"

namespace sluice::kernels::cuda {

// Of all warps, for row r of the tile, which is row `row` of the weight.
template <class S>
__device__ __forceinline__ float few_total(const FewArguments& p, const float* sums, int r, int token,
                                           int row) {
  float value = p.bias != nullptr ? p.bias[row] : 0.0f;
#pragma unroll
  for (int w = 0; w < S::kWarps; ++w) value += sums[(w * S::kRows + r) * p.pitch + token];
  return value;
}

template <class S>
__device__ __forceinline__ void few_finish(const FewArguments& p, const FewPlaces<S>& at, int mine) {
  const int lane = threadIdx.x & 31;
  wait_for_producer();
  for (int j = 0; j < mine; ++j) {
    const float* sums = at.sums + (j & 1) * at.sum_count;
    const int row0 = (static_cast<int>(blockIdx.x) + j * static_cast<int>(gridDim.x)) * S::kResults;
    // What sums are added to is on its way while they are made.
    constexpr int kHeld = S::kResults * static_cast<int>(kUnitsFew) / 32;
    [[maybe_unused]] bf16 before[kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int e = h * 32 + lane, row = row0 + e % S::kResults;
      if (S::Adds && p.added != 0 && e < S::kResults * p.n && row < p.rows)
        before[h] = p.out[e / S::kResults * p.out_stride + row];
    }
    barrier_wait(at.sums_full + 8 * (j & 1), (j >> 1) & 1);
    const auto total = [&](int r, int token, int row) { return few_total<S>(p, sums, r, token, row); };
#pragma unroll S::Adds ? kHeld : 1
    for (int h = 0; h < kHeld; ++h) {
      const int e = h * 32 + lane, r = e % S::kResults, token = e / S::kResults, row = row0 + r;
      if (e >= S::kResults * p.n || row >= p.rows) continue;
      float value = total(r, token, row);
      if constexpr (S::Gated) {
        value = gate(value, total(kUnitRows + r, token, p.rows + row), p.activation);
      } else if (S::Adds && p.added != 0) {
        value += widen(before[h]);
      }
      p.out[token * p.out_stride + row] = __float2bfloat16(value);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(at.sums_empty + 8 * (j & 1));
  }
}

}  // namespace sluice::kernels::cuda
