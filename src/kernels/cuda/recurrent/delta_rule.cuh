// What a token brings to the gated delta rule.
#pragma once

#include "kernels/cuda/recurrent/recurrent_walk.cuh"

namespace sluice::kernels::cuda {
namespace {

template <class T>
__device__ __forceinline__ float log_decay_of(const DeltaParams& p, int64_t row, int head, int64_t place) {
  const float gate = element<T>(p.decay, row, place) + (p.decay_bias != nullptr ? p.decay_bias[place] : 0.0f);
  return p.rate[head] * softplus_of(gate);
}
template <class T>
__device__ __forceinline__ float decay_of(const DeltaParams& p, int64_t row, int head, int64_t place) {
  return expf(log_decay_of<T>(p, row, head, place));
}

template <class T>
__device__ __forceinline__ float beta_of(const DeltaParams& p, int64_t row, int head) {
  return p.beta_scale * sigmoid_of(element<T>(p.beta, row, head));
}

// Column of qkv with which a head's values begin.
__device__ __forceinline__ int64_t values_of(const DeltaParams& p, int head) {
  return int64_t{2} * p.key_heads * p.key_dim + int64_t{head} * p.value_dim;
}

__device__ __forceinline__ int key_head_of(const DeltaParams& p, int head) {
  return p.tiled != 0 ? head % p.key_heads : head / (p.value_heads / p.key_heads);
}

// A warp makes q and k, of which q_at(i) and k_at(i) are the elements, unit vectors, q times key_dim^-1/2, and gives element i
// of both to put(i, q, k): 32 · kEach of them, zeros beyond key_dim.
template <int kEach, class Query, class Key, class Put>
__device__ __forceinline__ void make_unit(const DeltaParams& p, const Query& q_at, const Key& k_at,
                                          const Put& put) {
  const int lane = threadIdx.x % 32;
  float a[kEach], b[kEach], q_square = 0.0f, k_square = 0.0f;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = e * 32 + lane;
    a[e] = i < p.key_dim ? q_at(i) : 0.0f;
    b[e] = i < p.key_dim ? k_at(i) : 0.0f;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    q_square = fmaf(a[e], a[e], q_square);
    k_square = fmaf(b[e], b[e], k_square);
  }
  const float q_scale = rsqrtf(static_cast<float>(p.key_dim)) / sqrtf(warp_sum(q_square) + p.length_eps);
  const float k_scale = 1.0f / sqrtf(warp_sum(k_square) + p.length_eps);
#pragma unroll
  for (int e = 0; e < kEach; ++e) put(e * 32 + lane, a[e] * q_scale, b[e] * k_scale);
}

// The same for a token's q and k of a head.
template <class T, int kEach, class Put>
__device__ __forceinline__ void unit_keys(const DeltaParams& p, int64_t row, int head, const Put& put) {
  const int64_t q = int64_t{key_head_of(p, head)} * p.key_dim, k = q + int64_t{p.key_heads} * p.key_dim;
  make_unit<kEach>(
      p, [&](int i) { return element<T>(p.qkv, row, q + i); },
      [&](int i) { return element<T>(p.qkv, row, k + i); }, put);
}

}  // namespace
}  // namespace sluice::kernels::cuda
