// A row of logits as the sample sees it (sample.cu): a block of 1,024 threads has one row; thread t looks at elements
// 8 (v · 1,024 + t) + 0..7. How rows are read, sums in a fixed order, the largest element, and cuts by count or weight.
#pragma once

#include <cmath>

#include "kernels/cuda/common/device.cuh"
#include "kernels/sample.h"

namespace sluice::kernels::cuda::sampling {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 16;
constexpr int64_t kTile = int64_t{kThreads} * 8;

constexpr uint32_t kSteps = 2 * kThreads;  // keys from the largest down that are counted one by one

struct Shared {
  uint32_t
      steps[kSteps];  // elements of each key, from the row's largest key down; edited tokens do not count
  // Of an edited row: the first edit of each range of tokens; how many edited tokens have keys with these 16 bits, and
  // the weight of those that are kept.
  uint32_t first_edit[kSteps], edited[kSteps];
  double edited_weight[kSteps];
  int32_t count_cut, mass_cut;
  double count_above, mass_above;
  double bins[kWarps][kBins];
  double totals[kBins];
  double sums[kWarps];
  float best[kWarps];
  int32_t at[kWarps];
  int32_t counts[kWarps];
  int32_t bad, token, repeated;
};

// A row as it came, or, Masked, with -Inf for the tokens that its mask excludes. Its keys are 16 bits in the order of the
// values; both zeros are one key.
template <bool Vector, bool Masked = false>
struct PlainRow {
  static constexpr int kKeyBits = 16, kAhead = 4;

  const bf16* data;
  int64_t width;
  float largest, scale;           // weight of v: 2^((v - largest) * scale)
  const uint8_t* mask = nullptr;  // Masked: bit i % 8 of byte i / 8 is set where token i may be sampled

  __device__ float weight(float v) const { return exp2f((v - largest) * scale); }
  __device__ static uint32_t key_of(float v) {
    const uint32_t bits = __float_as_uint(v + 0.0f) >> 16;
    return (bits & 0x8000u) != 0 ? ~bits & 0xffffu : bits | 0x8000u;
  }
  __device__ static float value_of(uint32_t key) {
    const uint32_t bits = (key & 0x8000u) != 0 ? key & 0x7fffu : ~key & 0xffffu;
    return __uint_as_float(bits << 16);
  }

  __device__ float value(int64_t token) const {
    if constexpr (Masked) {
      if ((mask[token >> 3] >> (token & 7) & 1) == 0) return -INFINITY;
    }
    return __bfloat162float(data[token]);
  }

  // Eight elements from `first` on, a multiple of 8; how many there are. Ordinary loads: several may be on their way at
  // once, and none passes the wait at the kernel's start.
  __device__ __forceinline__ int fetch(int64_t first, float* f) const {
    const int count = load(first, f);
    if constexpr (Masked) {
      const uint32_t bits = count > 0 ? mask[first >> 3] : 0u;
#pragma unroll
      for (int j = 0; j < 8; ++j) f[j] = (bits >> j & 1u) != 0 ? f[j] : -INFINITY;
    }
    return count;
  }

 private:
  __device__ __forceinline__ int load(int64_t first, float* f) const {
    if constexpr (Vector) {
      if (first >= width) return 0;
      unpack8(*reinterpret_cast<const uint4*>(data + first), f);
      return 8;
    } else {
      const int count = static_cast<int>(first >= width ? 0 : width - first < 8 ? width - first : 8);
      for (int j = 0; j < count; ++j) f[j] = __bfloat162float(data[first + j]);
      return count;
    }
  }
};

template <class Row, class Look>
__device__ __forceinline__ void look_at(const Row& row, int64_t tile, Look look) {
  float f[8];
  const int64_t first = tile + threadIdx.x * 8;
  const int count = row.fetch(first, f);
  look(first, count, f);
}

// Several tiles' loads are on their way together.
template <class Row, class Look>
__device__ __forceinline__ void scan(const Row& row, Look look) {
  constexpr int kAhead = Row::kAhead;
  for (int64_t tile = 0; tile < row.width; tile += kAhead * kTile) {
    float f[kAhead][8];
    int count[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) count[a] = row.fetch(tile + a * kTile + threadIdx.x * 8, f[a]);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) look(tile + a * kTile + threadIdx.x * 8, count[a], f[a]);
  }
}

__device__ inline double block_sum(double v, Shared& s) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = v;
  __syncthreads();
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += s.sums[w];
  return total;
}

// What the threads before this one have; `total` is what all have.
template <class T>
__device__ T sum_before(T mine, T* warps, T& total) {
  T inclusive = mine;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int o = 1; o < 32; o *= 2) {
    const T other = __shfl_up_sync(0xffffffffu, inclusive, o);
    if (lane >= o) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = inclusive;
  __syncthreads();
  T before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total += warps[w];
  }
  return before + inclusive - mine;
}

// What a thread sees of a row: the largest element and its first place, whether anything is NaN or +Inf.
struct Largest {
  float value = -INFINITY;
  int32_t at = INT32_MAX;
  bool bad = false;
};

template <class Row>
__device__ __forceinline__ Largest seek_largest(const Row& row) {
  Largest best;
  scan(row, [&](int64_t first, int count, const float* f) {
    for (int j = 0; j < count; ++j) {
      best.bad |= !(f[j] < INFINITY);
      if (f[j] > best.value) best.value = f[j], best.at = static_cast<int32_t>(first) + j;
    }
  });
  return best;
}
// Vectors are compared by their largest elements; the place within the best one is looked up at the end.
__device__ __forceinline__ Largest seek_largest(const PlainRow<true>& row) {
  constexpr int kAhead = 4;
  constexpr uint32_t kLowest = 0xff80ff80u;  // -Inf twice
  const auto larger = [](uint32_t a, uint32_t b) {
    uint32_t result = 0;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  };
  Largest best;
  for (int64_t tile = 0; tile < row.width; tile += kAhead * kTile) {
    uint4 v[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t first = tile + a * kTile + threadIdx.x * 8;
      v[a] = first < row.width ? *reinterpret_cast<const uint4*>(row.data + first)
                               : make_uint4(kLowest, kLowest, kLowest, kLowest);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const uint32_t pair = larger(larger(v[a].x, v[a].y), larger(v[a].z, v[a].w));
      const float value = high_half(larger(pair, pair << 16));
      best.bad |= !(value < INFINITY);
      if (value > best.value)
        best.value = value, best.at = static_cast<int32_t>(tile + a * kTile + threadIdx.x * 8);
    }
  }
  if (best.at == INT32_MAX) return best;
  float f[8];
  row.fetch(best.at, f);
  int place = 7;
#pragma unroll
  for (int j = 6; j >= 0; --j) place = f[j] == best.value ? j : place;
  best.at += place;
  return best;
}

// To row.largest and s.token.
template <class Row>
__device__ void find_largest(Row& row, Shared& s) {
  auto [best, at, bad] = seek_largest(row);
  const auto take = [&](float v, int32_t i) {
    if (v > best || (v == best && i < at)) best = v, at = i;
  };
  for (int o = 16; o > 0; o >>= 1)
    take(__shfl_xor_sync(0xffffffffu, best, o), __shfl_xor_sync(0xffffffffu, at, o));
  if (threadIdx.x == 0) s.bad = 0;
  __syncthreads();
  if (bad) s.bad = 1;
  if (threadIdx.x % 32 == 0) s.best[threadIdx.x / 32] = best, s.at[threadIdx.x / 32] = at;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) take(s.best[w], s.at[w]);
  row.largest = best;
  if (threadIdx.x == 0) s.token = at;
  __syncthreads();
}

// The largest key from which on upwards the amounts reach a goal, and what lies above it. The amount of an element is
// its weight, or one.
struct Cut {
  uint32_t key = 0;
  double above = 0;
};

// Finds the lowest `bits` of the key, four at a time, where the others are known. each(take) calls take(value, times)
// for all elements that count, or more of them.
template <bool Weights, class Row, class Each>
__device__ Cut refine(const Row& row, int bits, Cut cut, double goal, const Each& each, Shared& s) {
#pragma unroll 1
  for (int shift = bits - 4; shift >= 0; shift -= 4) {
    float bins[kBins] = {};
    each([&](float value, float times) {
      const uint32_t key = Row::key_of(value);
      if (static_cast<uint64_t>(key) >> (shift + 4) != cut.key) return;
      const float amount = Weights ? times * row.weight(value) : times;
      const uint32_t bin = key >> shift & 15u;
#pragma unroll
      for (uint32_t b = 0; b < kBins; ++b) bins[b] += b == bin ? amount : 0.0f;
    });
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kBins; ++b) {
      const float sum = warp_sum(bins[b]);
      if (threadIdx.x % 32 == 0) s.bins[threadIdx.x / 32][b] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kBins) {
      double total = 0;
      for (int w = 0; w < kWarps; ++w) total += s.bins[w][threadIdx.x];
      s.totals[threadIdx.x] = total;
    }
    __syncthreads();
    int chosen = -1;
    double sum = cut.above, above = cut.above;
    for (int b = kBins - 1; b >= 0; --b) {
      if (s.totals[b] == 0) continue;
      chosen = b;
      above = sum;
      sum += s.totals[b];
      if (sum >= goal) break;
    }
    cut.key = cut.key << 4 | static_cast<uint32_t>(chosen < 0 ? 0 : chosen);
    cut.above = above;
  }
  return cut;
}

// Over the whole row, of the elements of at least `floor`.
template <bool Weights, class Row>
__device__ Cut find_cut(const Row& row, float floor, double goal, Shared& s) {
  const auto each = [&](const auto& take) {
    scan(row, [&](int64_t, int count, const float* f) {
      for (int j = 0; j < count; ++j)
        if (!(f[j] < floor)) take(f[j], 1.0f);
    });
  };
  return refine<Weights>(row, Row::kKeyBits, {}, goal, each, s);
}

}  // namespace sluice::kernels::cuda::sampling
