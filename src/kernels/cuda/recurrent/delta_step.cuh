// What delta_step.cu and delta_step_few.cu share: where a sequence's states are, the convolution of a block's channels and the
// norm of a head.
#pragma once

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/recurrent/delta_token.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kStepTaps = 4, kMostHeads = 8;  // heads that share a key head: blocks of a cluster

// From the L2, which has what other kernels wrote whenever that was; in the order of the program, seen from the waits.
__device__ __forceinline__ float4 load_state4(const float* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ float load_state(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ int32_t load_place(const int32_t* p) {
  int32_t v;
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// Where the block's sequence finds and leaves its states.
struct StepPlaces {
  const StatesView& s;
  int32_t from, save, last_save, slot = 0;  // slot: of the first save

  __device__ __forceinline__ StepPlaces(const StatesView& states, int sequence)
      : s(states),
        from(load_place(s.from + sequence)),
        save(load_place(s.save_begin + sequence)),
        last_save(load_place(s.save_begin + sequence + 1)) {}
  // Behind the loads of the states: it waits for those above.
  __device__ __forceinline__ void load_slot() {
    if (save < last_save) slot = load_place(s.saves + 2 * save + 1);
  }
  // Calls visit(offset of the slot) for each save.
  template <class Visit>
  __device__ __forceinline__ void each_save(const Visit& visit) const {
#pragma unroll 1
    for (int32_t i = save; i < last_save; ++i)
      visit((i == save ? slot : load_place(s.saves + 2 * i + 1)) * s.stride);
  }
};

// What a convolution makes of a block's channels, in shared memory.
struct Convolved {
  float *q, *k, *values;
};

// A thread's channels: of q and k of the block's head and of its columns of the values, up to kColumns, every 256th.
template <class T, int kRows, int kColumns>
struct StepChannels {
  static constexpr int kRounds = (2 * kParts * kRows + kColumns + kBlock - 1) / kBlock;
  float kernel[kRounds][kStepTaps], window[kRounds][kStepTaps], bias[kRounds];
  int channels, first_q, first_k, first_v, keys, count;

  // first_column: of the block's columns.
  __device__ __forceinline__ StepChannels(const DeltaStepParams& p, int head, int first_column)
      : channels(static_cast<int>(p.delta.qkv.dim)),
        first_q(key_head_of(p.delta, head) * p.delta.key_dim),
        first_k(first_q + p.delta.key_heads * p.delta.key_dim),
        first_v(static_cast<int>(values_of(p.delta, head)) + first_column),
        keys(p.delta.key_dim),
        count(2 * keys + min(kColumns, p.delta.value_dim)) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = index(r);
      bias[r] = i < count && p.conv_bias != nullptr ? __ldg(p.conv_bias + channel(i)) : 0.0f;
#pragma unroll
      for (int t = 0; t < kStepTaps; ++t) {
        const int tap = t - (kStepTaps - p.taps);
        kernel[r][t] = i < count && tap >= 0 ? __ldg(p.conv_kernel + tap * channels + channel(i)) : 0.0f;
      }
    }
  }
  __device__ __forceinline__ static int index(int round) {
    return round * kBlock + static_cast<int>(threadIdx.x);
  }
  __device__ __forceinline__ int channel(int i) const {
    return i < keys ? first_q + i : i < 2 * keys ? first_k + (i - keys) : first_v + (i - 2 * keys);
  }
  // Rows of the state, of which the last is at window[kStepTaps - 2]; what a shorter kernel has before them is zero.
  __device__ __forceinline__ void load_state_rows(const DeltaStepParams& p, const float* from) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = index(r);
#pragma unroll
      for (int t = 0; t + 1 < kStepTaps; ++t) {
        const int row = t - (kStepTaps - p.taps);
        window[r][t] = 0.0f;
        if (from != nullptr && i < count && row >= 0)
          window[r][t] = load_state(from + row * channels + channel(i));
      }
    }
  }
  __device__ __forceinline__ void load_token(const DeltaStepParams& p, int row) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = index(r);
      window[r][kStepTaps - 1] = i < count ? element<T>(p.delta.qkv, row, channel(i)) : 0.0f;
    }
  }
  // Rounded as the kernel of the convolution does.
  __device__ __forceinline__ void share(const DeltaStepParams& p, const Convolved& s) const {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = index(r);
      if (i >= count) continue;
      const float made = widen(narrow<T>(convolve(kernel[r], window[r], bias[r], p.silu != 0)));
      float* const to = i < keys ? s.q + i : i < 2 * keys ? s.k + (i - keys) : s.values + (i - 2 * keys);
      *to = made;
    }
  }
  // The new state of the block's values; of groups of 32 channels of q and k those of `member`, every members-th.
  __device__ __forceinline__ void store(const DeltaStepParams& p, float* to, int member, int members) const {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = index(r);
      if (i >= count || (i < 2 * keys && i / 32 % members != member)) continue;
#pragma unroll
      for (int t = 0; t + 1 < kStepTaps; ++t) {
        const int row = t - (kStepTaps - p.taps);
        if (row >= 0) to[row * channels + channel(i)] = window[r][t + 1];
      }
    }
  }
};

// The sum of squares of the columns that a warp's lanes have four each of, in the order of norm.cu.
__device__ __forceinline__ float sum_of_squares(const float (&f)[4]) {
  const bool odd = threadIdx.x % 2 != 0;
  const auto four = [&](float sum) {
#pragma unroll
    for (float x : f) sum = fmaf(x, x, sum);
    return sum;
  };
  const float even_sum = __shfl_xor_sync(0xffffffffu, four(0.0f), 1), both = four(even_sum);
  const float from_odd = __shfl_xor_sync(0xffffffffu, both, 1);
  float sum = odd ? both : from_odd;
#pragma unroll
  for (int o = 16; o > 1; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  return sum;
}

}  // namespace
}  // namespace sluice::kernels::cuda
