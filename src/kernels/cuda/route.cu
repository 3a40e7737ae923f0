// Mixtures of experts: the choice of experts, sorting tokens by expert, and the weighted sum of what they
// gave.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

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
    weights[slot] = (divide ? weights[slot] / total : weights[slot]) * p.scale;
}

// One block: count, prefix sum, then every thread places the pairs of its experts in order.
__global__ void __launch_bounds__(1024) sort_kernel(const SortParams p) {
  __shared__ int32_t counts[kMaxExperts + 1];
  allow_dependents();
  wait_for_producer();
  const int64_t pairs = p.n * p.used;
  for (int e = threadIdx.x; e <= p.experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < pairs; i += blockDim.x)
    atomicAdd(&counts[p.ids[i / p.used * p.ids_stride + i % p.used]], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t total = 0;
    for (int e = 0; e < p.experts; ++e) {
      const int32_t count = counts[e];
      p.begin[e] = counts[e] = total;
      total += count;
    }
    p.begin[p.experts] = total;
  }
  __syncthreads();
  // A warp per expert scans all pairs, so that the order within an expert is that of the tokens.
  const int lane = threadIdx.x % 32;
  for (int e = threadIdx.x / 32; e < p.experts; e += blockDim.x / 32) {
    int32_t next = counts[e];
    const int32_t stop = e + 1 < p.experts ? counts[e + 1] : static_cast<int32_t>(pairs);
    for (int64_t base = 0; base < pairs && next < stop; base += 32) {
      const int64_t i = base + lane;
      const bool mine = i < pairs && p.ids[i / p.used * p.ids_stride + i % p.used] == e;
      const unsigned mask = __ballot_sync(0xffffffffu, mine);
      if (mine) {
        const int32_t where = next + __popc(mask & ((1u << lane) - 1u));
        p.tokens[where] = static_cast<int32_t>(i / p.used);
        p.place[i] = where;
      }
      next += __popc(mask);
    }
  }
}

// grid: (pieces of a row, pairs folded)
template <class T>
__global__ void __launch_bounds__(256) weigh_kernel(const WeighParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.out.dim) return;
  for (int64_t pair = blockIdx.y; pair < p.out.n; pair += gridDim.y) {
    const int64_t token = pair / p.used, slot = pair % p.used;
    const float weight = p.weights[token * p.weights_stride + slot];
    static_cast<T*>(p.out.data)[p.place[pair] * p.out.stride_n + i] =
        narrow<T>(weight * widen(static_cast<const T*>(p.x.data)[token * p.x.stride_n + i]));
  }
}

template <class T>
__global__ void __launch_bounds__(256) combine_kernel(const CombineParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.out.dim) return;
  for (int64_t token = blockIdx.y; token < p.out.n; token += gridDim.y) {
    float sum = 0.0f;
    for (int slot = 0; slot < p.used; ++slot) {
      const int64_t row = p.place[token * p.used + slot];
      const float weight = p.weights != nullptr ? p.weights[token * p.weights_stride + slot] : 1.0f;
      sum += weight * widen(static_cast<const T*>(p.x.data)[row * p.x.stride_n + i]);
    }
    static_cast<T*>(p.out.data)[token * p.out.stride_n + i] = narrow<T>(sum);
  }
}

}  // namespace

void launch_route(const RouteParams& p, Stream stream) {
  if (p.logits.n == 0) return;
  check_launch(p.experts <= kMaxExperts ? cudaSuccess : cudaErrorInvalidValue,
               "route to more than 1024 experts");
  visit_activations(p.logits.type, [&](auto element) {
    const Grid grid{dim3(static_cast<unsigned>(p.logits.n)), dim3(32)};
    launch("route", route_kernel<decltype(element)>, grid, stream, p);
  });
}

void launch_sort(const SortParams& p, Stream stream) {
  check_launch(p.experts <= kMaxExperts ? cudaSuccess : cudaErrorInvalidValue,
               "sort by more than 1024 experts");
  launch("sort", sort_kernel, {dim3(1), dim3(1024)}, stream, p);
}

namespace {

// A thread per element of a row.
Grid grid_of(const View& v) {
  return {dim3(static_cast<unsigned>(ceil_div(v.dim, 256)), static_cast<unsigned>(v.n < 32768 ? v.n : 32768)),
          dim3(256)};
}

}  // namespace

void launch_weigh(const WeighParams& p, Stream stream) {
  if (p.out.n == 0) return;
  visit_activations(p.out.type, [&](auto element) {
    launch("weigh", weigh_kernel<decltype(element)>, grid_of(p.out), stream, p);
  });
}

void launch_combine(const CombineParams& p, Stream stream) {
  if (p.out.n == 0) return;
  visit_activations(p.out.type, [&](auto element) {
    launch("combine", combine_kernel<decltype(element)>, grid_of(p.out), stream, p);
  });
}

}  // namespace sluice::kernels::cuda
