// Mixtures of experts: which ones a token goes to, and with what weight.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMaxExperts = 1024;
enum ScoreCode : int32_t { kSoftmax, kSigmoid, kSoftmaxOfTop, kSparseMixer };

// Index of the largest of `count` values in shared memory; a tie goes to the lower index. One warp.
__device__ int largest_of(const float* values, int count) {
  float best = -INFINITY;
  int index = 0x7fffffff;
  for (int i = threadIdx.x; i < count; i += 32)
    if (values[i] > best) best = values[i], index = i;
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float value = __shfl_xor_sync(0xffffffffu, best, o);
    const int other = __shfl_xor_sync(0xffffffffu, index, o);
    if (value > best || (value == best && other < index)) best = value, index = other;
  }
  return index == 0x7fffffff ? 0 : index;
}

// Leaves -inf as the choice value of every expert outside the best groups.
__device__ void keep_best_groups(const RouteParams& p, float* choice, float* group_values) {
  const int size = p.experts / p.groups;
  for (int g = threadIdx.x; g < p.groups; g += 32) {
    // The sum of the best: the largest, then the largest below it in (value, index) order, and so on.
    float sum = 0.0f, bound = INFINITY;
    int bound_index = -1;
    for (int round = 0; round < p.group_best && round < size; ++round) {
      float best = -INFINITY;
      int index = -1;
      for (int i = 0; i < size; ++i) {
        const float v = choice[g * size + i];
        const bool below = v < bound || (v == bound && i > bound_index);
        if (below && (v > best || index < 0)) best = v, index = i;
      }
      sum += best, bound = best, bound_index = index;
    }
    group_values[g] = sum;
  }
  __syncwarp();
  for (int round = 0; round < p.groups_used; ++round) {
    const int g = largest_of(group_values, p.groups);
    __syncwarp();
    if (threadIdx.x == 0) group_values[g] = -INFINITY;
    for (int i = threadIdx.x; i < size; i += 32) choice[kMaxExperts + g * size + i] = 1.0f;
    __syncwarp();
  }
  for (int i = threadIdx.x; i < p.experts; i += 32)
    if (choice[kMaxExperts + i] == 0.0f) choice[i] = -INFINITY;
  __syncwarp();
}

// Of the best among those left, over those of them that are near it. One warp.
__device__ float sparse_share(const RouteParams& p, const float* left, float best) {
  float total = 0.0f;
  for (int i = threadIdx.x; i < p.experts; i += 32) {
    const bool near = best - left[i] <= p.margin * fmaxf(fabsf(left[i]), best);
    total += near ? expf(left[i] - best) : 0.0f;
  }
  return 1.0f / warp_sum(total);
}

__device__ __forceinline__ float scale_of(const RouteParams& p, int expert) {
  return p.weight_scale != nullptr ? p.scale * p.weight_scale[expert] : p.scale;
}

// One warp per token.
template <class T>
__global__ void __launch_bounds__(32) route_kernel(const RouteParams p) {
  __shared__ float scores[kMaxExperts];
  __shared__ float choice[2 * kMaxExperts];  // value for the choice; then 1 where the expert's group is kept
  __shared__ float group_values[kMaxExperts];
  allow_dependents();
  wait_for_producer();
  const int64_t token = blockIdx.x;
  const T* logits = static_cast<const T*>(p.logits.data) + token * p.logits.stride_n;
  float maximum = -INFINITY;
  for (int i = threadIdx.x; i < p.experts; i += 32) maximum = fmaxf(maximum, widen(logits[i]));
  maximum = warp_max(maximum);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < p.experts; i += 32) {
    const float v = widen(logits[i]);
    scores[i] = p.score == kSoftmax ? expf(v - maximum) : p.score == kSigmoid ? 1.0f / (1.0f + expf(-v)) : v;
    sum += scores[i];
  }
  sum = warp_sum(sum);
  for (int i = threadIdx.x; i < p.experts; i += 32) {
    if (p.score == kSoftmax) scores[i] /= sum;
    choice[i] = scores[i] + (p.choice_bias != nullptr ? p.choice_bias[i] : 0.0f);
    choice[kMaxExperts + i] = 0.0f;
  }
  __syncwarp();
  if (p.groups > 1) keep_best_groups(p, choice, group_values);

  int32_t* ids = p.ids + token * p.ids_stride;
  float* weights = p.weights + token * p.weights_stride;
  for (int slot = 0; slot < p.used; ++slot) {
    const int best = largest_of(choice, p.experts);
    const float share = p.score == kSparseMixer ? sparse_share(p, choice, choice[best]) : scores[best];
    __syncwarp();
    if (threadIdx.x == 0) {
      ids[slot] = best;
      weights[slot] = share;
      choice[best] = -INFINITY;
    }
    __syncwarp();
  }
  if (threadIdx.x != 0) return;
  float total = 0.0f;
  if (p.score == kSoftmaxOfTop) {
    float top = -INFINITY;
    for (int slot = 0; slot < p.used; ++slot) top = fmaxf(top, weights[slot]);
    for (int slot = 0; slot < p.used; ++slot) weights[slot] = expf(weights[slot] - top);
  }
  for (int slot = 0; slot < p.used; ++slot) total += weights[slot];
  const bool divide = p.score == kSoftmaxOfTop || (p.normalize != 0 && p.score != kSparseMixer);
  for (int slot = 0; slot < p.used; ++slot)
    weights[slot] = (divide ? weights[slot] / total : weights[slot]) * scale_of(p, ids[slot]);
}

// As unsigned numbers in the order of the floats.
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

constexpr int kQuickWarps = 4;

// Without groups and neighbours, up to 32 experts chosen of 32 · Each: a warp per token, everything in registers. Lane l
// has experts l, l + 32, ...; lane s ends with what slot s chose.
template <class T, int Each>
__global__ void __launch_bounds__(kQuickWarps * 32) route_quick_kernel(const RouteParams p) {
  constexpr unsigned kAll = 0xffffffffu;
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32;
  const int64_t token = int64_t{blockIdx.x} * kQuickWarps + threadIdx.x / 32;
  if (token >= p.logits.n) return;
  const T* logits = static_cast<const T*>(p.logits.data) + token * p.logits.stride_n;
  float scores[Each], choice[Each], maximum = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int j = 0; j < Each; ++j) {
    scores[j] = lane + 32 * j < p.experts ? widen(logits[lane + 32 * j]) : -INFINITY;
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
  int own_id = 0;
  float own_share = 0.0f;
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
    if (lane == slot) own_id = expert, own_share = share;
  }
  const bool chosen = lane < p.used;
  if (p.score == kSoftmaxOfTop) {
    const float top = warp_max(chosen ? own_share : -INFINITY);
    own_share = chosen ? expf(own_share - top) : 0.0f;
  }
  const float total = warp_sum(chosen ? own_share : 0.0f);
  if (!chosen) return;
  p.ids[token * p.ids_stride + lane] = own_id;
  p.weights[token * p.weights_stride + lane] =
      (p.score == kSoftmaxOfTop || p.normalize != 0 ? own_share / total : own_share) * scale_of(p, own_id);
}

template <class T>
void launch_quick(const RouteParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.logits.n, kQuickWarps))), dim3(kQuickWarps * 32)};
  if (p.experts <= 64) return launch("route", route_quick_kernel<T, 2>, grid, stream, p);
  if (p.experts <= 128) return launch("route", route_quick_kernel<T, 4>, grid, stream, p);
  launch("route", route_quick_kernel<T, 8>, grid, stream, p);
}

}  // namespace

void launch_route(const RouteParams& p, Stream stream) {
  if (p.logits.n == 0) return;
  check_launch(p.experts <= kMaxExperts ? cudaSuccess : cudaErrorInvalidValue,
               "route to more than 1024 experts");
  const bool quick = p.experts <= 256 && p.used <= 32 && p.groups == 1 && p.score != kSparseMixer;
  visit_activations(p.logits.type, [&](auto element) {
    if (quick) return launch_quick<decltype(element)>(p, stream);
    const Grid grid{dim3(static_cast<unsigned>(p.logits.n)), dim3(32)};
    launch("route", route_kernel<decltype(element)>, grid, stream, p);
  });
}

}  // namespace sluice::kernels::cuda
