// The norm of one token in units_few.cuh.
#pragma once

#include "kernels/cuda/gemm/quantized/units_few_shape.cuh"

namespace sluice::kernels::cuda {

__device__ __forceinline__ void sync_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(8 * 32) : "memory");
}

// The warps that multiply norm the token, on its way to where x stays, and make its sums over groups of columns.
template <class S>
struct FewNorm {
  static constexpr int kThreads = S::kWarps * 32, kHeld = static_cast<int>(kMostNormed) / (8 * kThreads);

  __device__ __forceinline__ static int piece(int h) { return h * kThreads + static_cast<int>(threadIdx.x); }

  // Has the L2 fetch the gains while the kernel in front still runs.
  __device__ __forceinline__ static void fetch(const FewArguments& p) {
    const int line = static_cast<int>(threadIdx.x) * 32;
    if (p.normed != nullptr && p.gain != nullptr && line < p.units * kUnitCols)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(p.gain + line) : "memory");
  }
  __device__ __forceinline__ static void share(const FewArguments& p, const FewPlaces<S>& at, uint8_t* base) {
    float4 gains[2 * kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const bool there = p.gain != nullptr && piece(h) < p.units * 8;
      const auto* gain = reinterpret_cast<const float4*>(p.gain) + piece(h) * 2;
      gains[2 * h] = there ? __ldg(gain) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
      gains[2 * h + 1] = there ? __ldg(gain + 1) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    }
    const int pieces = p.units * 8, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    uint4 held[kHeld];
    float squares = 0.0f;
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      held[h] = piece(h) < pieces ? load_activation(p.x + piece(h) * 8) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      float f[8];
      unpack8(held[h], f);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += f[j] * f[j];
    }
    squares = warp_sum(squares);
    if (lane == 0) at.sums[warp] = squares;
    sync_consumers();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) total += at.sums[w];
    const float factor = rsqrtf(total / static_cast<float>(p.units * kUnitCols) + p.eps);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (h * kThreads >= pieces) break;
      const bool there = piece(h) < pieces;  // of eight lanes, which have a unit, all or none
      const float4 low = gains[2 * h], high = gains[2 * h + 1];
      float f[8];
      unpack8(held[h], f);
      f[0] *= factor * low.x, f[1] *= factor * low.y, f[2] *= factor * low.z, f[3] *= factor * low.w;
      f[4] *= factor * high.x, f[5] *= factor * high.y, f[6] *= factor * high.z, f[7] *= factor * high.w;
      const uint4 rounded = pack8(f);
      const int unit = piece(h) >> 3, j = piece(h) & 7;
      if constexpr (S::Sums::kNeeded) keep(at, rounded, unit, j, there);
      if (!there) continue;
      *reinterpret_cast<uint4*>(base + (at.x - shared_address(base)) + unit * 128 + ((j ^ (unit & 7)) << 4)) =
          rounded;
      if (blockIdx.x == 0) reinterpret_cast<uint4*>(p.normed)[piece(h)] = rounded;
    }
    sync_consumers();
  }

 private:
  // The sums that GroupSums::keep() leaves, for a token that stands in all columns.
  __device__ __forceinline__ static void keep(const FewPlaces<S>& at, uint4 rounded, int unit, int j,
                                              bool there) {
    constexpr int kLanes = 8 / Unit<S::U>::kGroups;
    float f[8], sum = 0.0f;
    unpack8(rounded, f);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += f[i];
#pragma unroll
    for (int o = 1; o < kLanes; o *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    for (int t = j % kLanes; t < 4 && there; t += kLanes)
      at.kept[unit * S::kKept + j / kLanes * 4 + t] = make_float2(sum, sum);
  }
};

}  // namespace sluice::kernels::cuda
