// A tile of gemm_split_sm90.cu: its shape, and how the blocks of a cluster add up their sums and store them.
#pragma once

#include <algorithm>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/norm_factors.cuh"

namespace sluice::kernels::cuda {

constexpr int kSharedLimit = 232448 - 1024, kMostStages = 8;

// kGroups warpgroups that have kParts times 64 tokens each.
template <class E, int kGroups_, int kParts_, int kRows_>
struct SplitShape {
  using Element = E;
  static constexpr int kGroups = kGroups_, kParts = kParts_, kRows = kRows_;
  static constexpr int kDepth = 128 / static_cast<int>(sizeof(E));  // columns of a stage
  static constexpr int kTokens = 64 * kParts * kGroups;
  static constexpr int kXBytes = kTokens * 128, kHalfBytes = kRows / 2 * 128;
  static constexpr int kStageBytes = kXBytes + 2 * kHalfBytes;
  // Barriers and factors of tokens, then the stages.
  static constexpr int kFactors = 2 * kMostStages * 8;
  static constexpr int kRing = (kFactors + 4 * kTokens + 1023) / 1024 * 1024;
  static constexpr int kStages = std::min(kMostStages, (kSharedLimit - 1024 - kRing) / kStageBytes);
  // The sums take the place of the stages. Eight floats more than a row: lanes of eight tokens write to other banks.
  static constexpr int kPitch = kRows + 8, kSumBytes = kTokens * kPitch * 4;
  static constexpr int shared_of(int stages) {
    return kRing + std::max(stages * kStageBytes, kSumBytes) + 1024;
  }
  static constexpr int kShared = shared_of(kStages);
  static constexpr int kThreads = 128 + 128 * kGroups;
  static constexpr int kSums = kRows / 2;  // of a thread and 64 tokens
  static_assert(kRows % 32 == 0 && kStages >= 3 && kShared <= kSharedLimit);
  static_assert(kHalfBytes % 1024 == 0, "both halves start where a swizzled box may");
};

struct SplitArguments {
  bf16* out;
  const float* bias;      // or null
  const float* scales;    // of the weight's rows; fp8 only
  const float* x_scales;  // of the tokens; fp8 only
  int64_t out_stride;
  int n, rows;          // rows: of out
  int steps, per_part;  // pieces of the columns, as long as a stage: of all, and of a block
  int stages;           // of the ring
  int second;           // from a row of the first half of a tile to the row of the second
  int columns;          // of out that a tile makes
  int x_rows;           // of x in a stage
  int gated, activation;
  NormFactors factors;
  NormedSum sum;
};

__device__ __forceinline__ int first_row(const SplitArguments& p) {
  return static_cast<int>(blockIdx.x / cluster_size()) * p.columns;
}

// Eight sums of all blocks of the cluster.
__device__ __forceinline__ void add_shares(uint32_t address, int shares, float* f) {
#pragma unroll
  for (int j = 0; j < 8; ++j) f[j] = 0.0f;
  for (int share = 0; share < shares; ++share) {
    const uint32_t remote = address_in(address, static_cast<uint32_t>(share));
    const float4 low = load_shared(remote), high = load_shared(remote + 16);
    f[0] += low.x, f[1] += low.y, f[2] += low.z, f[3] += low.w;
    f[4] += high.x, f[5] += high.y, f[6] += high.z, f[7] += high.w;
  }
}

// The tokens that a block of the cluster stores results of.
struct TokenRange {
  int first, last;
};
__device__ __forceinline__ TokenRange tokens_of_block(const SplitArguments& p) {
  const int shares = static_cast<int>(cluster_size()), rank = static_cast<int>(cluster_rank());
  const int per_share = (p.n + shares - 1) / shares, first = rank * per_share;
  return {first, first + per_share < p.n ? first + per_share : p.n};
}

template <class S>
__device__ __forceinline__ void keep_factors(const SplitArguments& p, float* kept) {
  constexpr int kThreads = 128 * S::kGroups, kPasses = S::kTokens * 8 / kThreads;
  const int thread = static_cast<int>(threadIdx.x) - 128;
  const TokenRange tokens = tokens_of_block(p);
  float factors[kPasses];
  const int first = tokens.first + thread / 8;
  load_factors(p.factors, first, kThreads / 8, tokens.last, factors);
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int token = first + i * (kThreads / 8);
    if (thread % 8 == 0 && token < tokens.last) kept[token] = factors[i];
  }
}

// Eight results of a token from column `c` of the tile on, which is row `row` of the weight.
template <class S>
__device__ __forceinline__ void finish(const SplitArguments& p, uint32_t sums, const float* factors,
                                       int shares, int token, int c, int row, float* f) {
  constexpr bool kScaled = sizeof(typename S::Element) == 1;
  add_shares(sums + (token * S::kPitch + c) * 4, shares, f);
  if (!kScaled && p.factors.squares != nullptr) {
    const float factor = factors[token];
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] *= factor;
  }
  if constexpr (kScaled) {
    const float scale = p.x_scales[token];
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] *= scale * __ldg(p.scales + row + j);
  }
  if (p.bias != nullptr) {
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] += __ldg(p.bias + row + j);
  }
}

// What a block stores, eight results of a token at a time: piece e is of these.
struct SplitPlace {
  int token, c, row;
};
template <class S>
struct Places {
  static constexpr int kStride = 128 * S::kGroups;
  const TokenRange tokens;
  const int pieces, row0, count;
  __device__ __forceinline__ explicit Places(const SplitArguments& p)
      : tokens(tokens_of_block(p)),
        pieces(p.columns / 8),
        row0(first_row(p)),
        count((tokens.last - tokens.first) * pieces) {}
  __device__ __forceinline__ SplitPlace at(int e) const {
    const int c = e % pieces * 8;
    return {tokens.first + e / pieces, c, row0 + c};
  }
};

// What is there before, of a thread's first two pieces: on their way while the blocks of the cluster meet.
template <class S>
struct Before {
  uint4 next = {}, after = {};
  __device__ __forceinline__ explicit Before(const SplitArguments& p) {
    if (p.sum.out == nullptr) return;
    const int e = static_cast<int>(threadIdx.x) - 128;
    next = load(p, e);
    after = load(p, e + Places<S>::kStride);
  }
  __device__ __forceinline__ static uint4 load(const SplitArguments& p, int e) {
    const Places<S> places(p);
    const SplitPlace place = places.at(e);
    if (e >= places.count || place.row >= p.rows) return make_uint4(0, 0, 0, 0);
    return load_activation(p.out + place.token * p.out_stride + place.row);
  }
};

// f is added to what is there, and the first half of the sum's norm is stored. Four neighbouring lanes have the pieces of 32
// columns.
__device__ __forceinline__ void add_normed(const SplitArguments& p, const SplitPlace& place, uint4 before,
                                           float (&f)[8]) {
  float gain[8], old[8];
  if (p.sum.gain != nullptr) {
    *reinterpret_cast<float4*>(gain) = __ldg(reinterpret_cast<const float4*>(p.sum.gain + place.row));
    *reinterpret_cast<float4*>(gain + 4) = __ldg(reinterpret_cast<const float4*>(p.sum.gain + place.row) + 1);
  }
  unpack8(before, old);
#pragma unroll
  for (int j = 0; j < 8; ++j) f[j] = widen(narrow<bf16>(f[j] + old[j]));
  float square = 0.0f, normed[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    square = fmaf(f[j], f[j], square);
    normed[j] = p.sum.gain != nullptr ? f[j] * gain[j] : f[j];
  }
  const unsigned together = 0xfu << (threadIdx.x % 32 & 28);
  square += __shfl_xor_sync(together, square, 1);
  square += __shfl_xor_sync(together, square, 2);
  if (threadIdx.x % 4 == 0)
    p.sum.squares[place.token * (p.rows / kSplitSquares) + place.row / kSplitSquares] = square;
  bf16* out = static_cast<bf16*>(p.sum.out) + place.token * p.sum.out_stride + place.row;
  *reinterpret_cast<uint4*>(out) = pack8(normed);
}

template <class S>
__device__ __forceinline__ void store_share(const SplitArguments& p, uint32_t sums, const float* factors,
                                            Before<S> before) {
  const int shares = static_cast<int>(cluster_size());
  const Places<S> places(p);
  for (int e = static_cast<int>(threadIdx.x) - 128; e < places.count; e += Places<S>::kStride) {
    const SplitPlace place = places.at(e);
    const uint4 old = before.next;
    before.next = before.after;
    if (p.sum.out != nullptr) before.after = Before<S>::load(p, e + 2 * Places<S>::kStride);
    if (place.row >= p.rows) continue;
    float f[8];
    finish<S>(p, sums, factors, shares, place.token, place.c, place.row, f);
    if (p.gated != 0) {
      float up[8];
      finish<S>(p, sums, factors, shares, place.token, place.c + S::kRows / 2, place.row + p.rows, up);
      gate8(f, up, p.activation);
    }
    if (p.sum.out != nullptr) add_normed(p, place, old, f);
    bf16* out = p.out + place.token * p.out_stride + place.row;
    *reinterpret_cast<uint4*>(out) = pack8(f);
  }
}

}  // namespace sluice::kernels::cuda
