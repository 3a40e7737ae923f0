// The choice of a token's experts by one warp, in registers; for the kernels that choose and go on with it.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {

enum ScoreCode : int32_t { kSoftmax, kSigmoid, kSoftmaxOfTop, kSparseMixer };

constexpr int kMostByWarp = 256;  // experts

__device__ __forceinline__ float scale_of(const RouteParams& p, int expert) {
  return p.weight_scale != nullptr ? p.scale * p.weight_scale[expert] : p.scale;
}

// As unsigned numbers in the order of the floats.
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Of the slots behind the chosen ones.
template <class T>
__device__ __forceinline__ float always_weight(const RouteParams& p, const T* logits) {
  return p.always_gated != 0 ? p.always_weight / (1.0f + expf(-widen(__ldcg(logits + p.experts))))
                             : p.always_weight;
}

// What slot `lane` of a token has; nothing where the lane has no slot.
struct Chosen {
  int expert = 0;
  float weight = 0.0f;
};

// REQUIRES: routes_by_warp(p), at most 32 · Each experts. Lane l has experts l, l + 32, ...; a tie goes to the lower expert. Logits
// come from the L2, whatever was read there before.
template <class T, int Each>
__device__ __forceinline__ Chosen choose_experts(const RouteParams& p, int64_t token) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  const T* logits = static_cast<const T*>(p.logits.data) + token * p.logits.stride_n;
  float scores[Each], choice[Each], maximum = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int j = 0; j < Each; ++j) {
    scores[j] = lane + 32 * j < p.experts ? widen(__ldcg(logits + lane + 32 * j)) : -INFINITY;
    maximum = fmaxf(maximum, scores[j]);
  }
  maximum = warp_max(maximum);
#pragma unroll
  for (int j = 0; j < Each; ++j) {
    if (p.score == kSoftmax) scores[j] = expf(scores[j] - maximum);
    if (p.score == kSigmoid) scores[j] = 1.0f / (1.0f + expf(-scores[j]));
    sum += scores[j];
  }
  if (p.score == kSoftmax) sum = warp_sum(sum);
#pragma unroll
  for (int j = 0; j < Each; ++j) {
    const int expert = lane + 32 * j;
    if (p.score == kSoftmax) scores[j] /= sum;
    choice[j] = scores[j] + (p.choice_bias != nullptr && expert < p.experts ? p.choice_bias[expert] : 0.0f);
    if (expert >= p.experts) choice[j] = -INFINITY;
  }
  Chosen own;
  for (int slot = 0; slot < p.used; ++slot) {
    uint32_t best = 0;
    int at = 0;
#pragma unroll
    for (int j = 0; j < Each; ++j) {
      const uint32_t value = ordered(choice[j]);
      if (value > best) best = value, at = j;
    }
    const uint32_t top = __reduce_max_sync(kAll, best);
    const int expert = __reduce_min_sync(kAll, best == top ? lane + 32 * at : 0x7fffffff);
    float share = 0.0f;
#pragma unroll
    for (int j = 0; j < Each; ++j) {
      if (lane + 32 * j != expert) continue;
      share = scores[j];
      choice[j] = -INFINITY;
    }
    share = __shfl_sync(kAll, share, expert % 32);
    if (lane == slot) own = {expert, share};
  }
  const bool chosen = lane < p.used;
  if (p.score == kSoftmaxOfTop) {
    const float top = warp_max(chosen ? own.weight : -INFINITY);
    own.weight = chosen ? expf(own.weight - top) : 0.0f;
  }
  const float total = warp_sum(chosen ? own.weight : 0.0f);
  if (!chosen) {
    if (lane < p.used + p.always) own = {p.experts + lane - p.used, always_weight(p, logits)};
    return own;
  }
  const bool divide = p.score == kSoftmaxOfTop || p.normalize != 0;
  own.weight = (divide ? own.weight / total : own.weight) * scale_of(p, own.expert);
  return own;
}

__device__ __forceinline__ void store_choice(const RouteParams& p, int64_t token, const Chosen& own) {
  const int lane = threadIdx.x % 32;
  if (lane >= p.used + p.always) return;
  p.ids[token * p.ids_stride + lane] = own.expert;
  p.weights[token * p.weights_stride + lane] = own.weight;
}

}  // namespace sluice::kernels::cuda
