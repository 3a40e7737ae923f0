// Mixtures of experts: which ones a token goes to, and with what weight.
#include "kernels/cuda/moe/route.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMaxExperts = 1024;

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
  for (int i = threadIdx.x; i < p.always; i += 32) {
    ids[p.used + i] = p.experts + i;
    weights[p.used + i] = always_weight(p, logits);
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

constexpr int kQuickWarps = 4;

// Without groups and neighbours, up to 32 experts chosen of 32 · Each: a warp per token. The choice is made twice, first of
// whatever is there, so that its instructions have come from memory when the kernel in front has ended: one block finds
// them on no multiprocessor.
template <class T, int Each>
__global__ void __launch_bounds__(kQuickWarps * 32) route_quick_kernel(const RouteParams p) {
  allow_dependents();
  Chosen own;
  const int64_t token = int64_t{blockIdx.x} * kQuickWarps + threadIdx.x / 32;
#pragma unroll 1
  for (int turn = gridDim.x == 1 ? 0 : 1; turn < 2; ++turn) {
    if (turn == 1) wait_for_producer();
    if (token < p.logits.n) own = choose_experts<T, Each>(p, token);
  }
  if (token < p.logits.n) store_choice(p, token, own);
}

template <class T>
void launch_quick(const RouteParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.logits.n, kQuickWarps))), dim3(kQuickWarps * 32)};
  if (p.experts <= 64) return launch("route", route_quick_kernel<T, 2>, grid, stream, p);
  if (p.experts <= 128) return launch("route", route_quick_kernel<T, 4>, grid, stream, p);
  launch("route", route_quick_kernel<T, 8>, grid, stream, p);
}

}  // namespace

bool routes_by_warp(const RouteParams& p) {
  return p.experts <= kMostByWarp && p.used + p.always <= 32 && p.groups == 1 && p.score != kSparseMixer;
}

void launch_route(const RouteParams& p, Stream stream) {
  if (p.logits.n == 0) return;
  check_launch(p.experts <= kMaxExperts ? cudaSuccess : cudaErrorInvalidValue,
               "route to more than 1024 experts");
  const bool quick = routes_by_warp(p);
  visit_activations(p.logits.type, [&](auto element) {
    if (quick) return launch_quick<decltype(element)>(p, stream);
    const Grid grid{dim3(static_cast<unsigned>(p.logits.n)), dim3(32)};
    launch("route", route_kernel<decltype(element)>, grid, stream, p);
  });
}

}  // namespace sluice::kernels::cuda
