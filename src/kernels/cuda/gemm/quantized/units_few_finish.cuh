// The warp of units_few.cuh that makes results of sums.
#pragma once

#include "kernels/cuda/attention/block_of.cuh"
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

// The same where rows are queries, keys and values: a tile has elements of one half of a head and those of the other that
// they are rotated with.
template <class S>
__device__ __forceinline__ void few_finish_rope(const FewArguments& p, const FewPlaces<S>& at, int mine) {
  const FewRope& rope = p.rope;
  const int lane = threadIdx.x & 31, half = rope.half * kUnitRows;
  constexpr int kHeld = kUnitRows * static_cast<int>(kUnitsFew) / 32;
  wait_for_producer();
  for (int j = 0; j < mine; ++j) {
    const float* sums = at.sums + (j & 1) * at.sum_count;
    const int tile = static_cast<int>(blockIdx.x) + j * static_cast<int>(gridDim.x);
    int head = tile / rope.half;
    const int first = tile % rope.half * kUnitRows, row0 = head * 2 * half + first;
    const bool is_query = head < rope.heads, is_value = head >= rope.heads + rope.kv_heads;
    if (!is_query) head -= rope.heads + (is_value ? rope.kv_heads : 0);
    const CacheView& cache = is_value ? rope.v : rope.k;
    float2 angle[kHeld];
    int64_t place[kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int e = h * 32 + lane, token = e / kUnitRows, pair = first + e % kUnitRows;
      if (token >= p.n) break;
      if (!is_value)
        angle[h] = *reinterpret_cast<const float2*>(rope.angles + token * rope.angle_stride + pair * 2);
      if (is_query) continue;
      int64_t slot;
      const int64_t block = block_of(rope.table, token, slot);
      place[h] = block * cache.stride_block + slot * cache.stride_slot + head * cache.stride_head + pair;
    }
    barrier_wait(at.sums_full + 8 * (j & 1), (j >> 1) & 1);
    const auto total = [&](int r, int token, int row) { return few_total<S>(p, sums, r, token, row); };
    const auto store = [&](int64_t to, float value) {
      if (cache.type == DType::F8_E4M3) {
        static_cast<__nv_fp8_storage_t*>(cache.data)[to] =
            __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      } else {
        static_cast<bf16*>(cache.data)[to] = __float2bfloat16(value);
      }
    };
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int e = h * 32 + lane, token = e / kUnitRows, r = e % kUnitRows, row = row0 + r;
      if (token >= p.n) break;
      float a = total(r, token, row), b = total(kUnitRows + r, token, row + half);
      if (!is_value) {
        const float a0 = a;
        a = a0 * angle[h].x - b * angle[h].y;
        b = b * angle[h].x + a0 * angle[h].y;
      }
      if (is_query) {
        p.out[token * p.out_stride + row] = __float2bfloat16(a);
        p.out[token * p.out_stride + row + half] = __float2bfloat16(b);
      } else {
        store(place[h], a);
        store(place[h] + half, b);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(at.sums_empty + 8 * (j & 1));
  }
}

}  // namespace sluice::kernels::cuda
