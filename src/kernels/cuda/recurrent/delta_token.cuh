// One token of the gated delta rule with a head's state in the registers of a block.
//
// A block has 128 columns of the state, a warp kRows whole rows of them, four columns to a lane, so that a warp moves 512 bytes
// in a row. Sums over the rows are added in the order that delta_rule.cu has: over a warp's rows first to last, then over the
// warps two by two, so that a token has the same bits in both.
#pragma once

#include "kernels/cuda/recurrent/delta_rule.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kParts = 8, kBlock = 32 * kParts, kBlockColumns = 128;

__device__ __forceinline__ float4 add4(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
// a + b * c
__device__ __forceinline__ float4 fma4(float4 b, float c, float4 a) {
  return make_float4(fmaf(b.x, c, a.x), fmaf(b.y, c, a.y), fmaf(b.z, c, a.z), fmaf(b.w, c, a.w));
}

template <int kRows>
struct TokenTile {
  float q[kParts * kRows], k[kParts * kRows], decay[kParts * kRows];
  float beta;
  float4 sums[kParts][32];

  // Of all warps; every thread of the block calls it.
  __device__ __forceinline__ float4 sum_of_parts(float4 own) {
    const int lane = threadIdx.x % 32;
    sums[threadIdx.x / 32][lane] = own;
    __syncthreads();
    const auto two = [&](int part) { return add4(sums[part][lane], sums[part + 1][lane]); };
    const float4 sum = add4(add4(two(0), two(2)), add4(two(4), two(6)));
    __syncthreads();
    return sum;
  }
};

// A thread's part of the state.
template <int kRows>
struct TokenState {
  float4 rows[kRows];

  // One token, of which the tile has all but the values; gives what its q reads of the new state, summed over all warps.
  // save() is called when the state is new, before that sum. Every thread of the block calls it.
  template <class Save>
  __device__ __forceinline__ float4 advance(TokenTile<kRows>& s, float4 value, const Save& save) {
    const int first = static_cast<int>(threadIdx.x) / 32 * kRows;
    const float *q = s.q + first, *k = s.k + first, *decay = s.decay + first;
    float4 known = make_float4(0.0f, 0.0f, 0.0f, 0.0f), sum = known;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rows[r] =
          make_float4(rows[r].x * decay[r], rows[r].y * decay[r], rows[r].z * decay[r], rows[r].w * decay[r]);
      known = fma4(rows[r], k[r], known);
    }
    known = s.sum_of_parts(known);
    const float4 delta = make_float4((value.x - known.x) * s.beta, (value.y - known.y) * s.beta,
                                     (value.z - known.z) * s.beta, (value.w - known.w) * s.beta);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rows[r] = fma4(delta, k[r], rows[r]);
      sum = fma4(rows[r], q[r], sum);
    }
    save();
    return s.sum_of_parts(sum);
  }
  // Of the first `count` rows of the thread.
  __device__ __forceinline__ void store(float* to, int count, int64_t pitch) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r, to += pitch)
      if (r < count) *reinterpret_cast<float4*>(to) = rows[r];
  }
};

// A token's decays and its beta. A thread has one decay; what the layer adds to it is there before the token.
template <class T, int kRows>
struct TokenGates {
  const int own = static_cast<int>(threadIdx.x);
  const bool counts;
  const int place;  // of the decay
  const float rate, bias;
  float decay = 0.0f, beta = 0.0f;

  __device__ __forceinline__ TokenGates(const DeltaParams& p, int head)
      : counts(own < (p.channel_decay != 0 ? p.key_dim : kParts * kRows)),
        place(p.channel_decay != 0 ? head * p.key_dim + own : head),
        rate(__ldg(p.rate + head)),
        bias(counts && p.decay_bias != nullptr ? __ldg(p.decay_bias + place) : 0.0f) {}
  __device__ __forceinline__ bool brings_beta() const { return own == kBlock - 1; }
  __device__ __forceinline__ void load(const DeltaParams& p, int64_t row, int head) {
    if (counts) decay = element<T>(p.decay, row, place);
    if (brings_beta()) beta = element<T>(p.beta, row, head);
  }
  template <class Tile>
  __device__ __forceinline__ void share(const DeltaParams& p, Tile& s) const {
    if (own < kParts * kRows) s.decay[own] = counts ? expf(rate * softplus_of(decay + bias)) : 0.0f;
    if (brings_beta()) s.beta = p.beta_scale * sigmoid_of(beta);
  }
};

}  // namespace
}  // namespace sluice::kernels::cuda
