// Mixtures of experts: pairs (token, slot) sorted by expert, and the way back: the weighted sum of what a token's experts
// gave.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kSortThreads = 1024, kSortWarps = kSortThreads / 32;

__device__ __forceinline__ int expert_of(const SortParams& p, uint32_t pair) {
  if (p.ids_stride == p.used) return p.ids[pair];
  const uint32_t used = p.used, token = pair / used;
  return p.ids[token * p.ids_stride + (pair - token * used)];
}

// A block for each expert, which reads the experts of all pairs twice, a range of them in each warp: first to count its own
// and those that come before, then to place its own in the order of the tokens.
__global__ void __launch_bounds__(kSortThreads) sort_kernel(const SortParams p) {
  __shared__ int32_t own[kSortWarps], before[kSortWarps];
  allow_dependents();
  wait_for_producer();
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t pairs = p.n * p.used, each = (pairs + kSortThreads - 1) / kSortThreads * 32;
  const uint32_t from = min(warp * each, pairs), to = min(from + each, pairs);
  int32_t mine = 0, less = 0;
#pragma unroll 8
  for (uint32_t i = from + lane; i < to; i += 32) {
    const int of = expert_of(p, i);
    mine += of == expert, less += of < expert;
  }
  mine = __reduce_add_sync(0xffffffffu, mine);
  less = __reduce_add_sync(0xffffffffu, less);
  if (lane == 0) own[warp] = mine, before[warp] = less;
  __syncthreads();
  const int32_t begin = __reduce_add_sync(0xffffffffu, before[lane]);
  int32_t next = begin + __reduce_add_sync(0xffffffffu, lane < warp ? own[lane] : 0);
  if (threadIdx.x == 0) {
    p.begin[expert] = begin;
    if (expert == p.experts - 1) p.begin[p.experts] = static_cast<int32_t>(pairs);
  }
  if (mine == 0) return;
#pragma unroll 8
  for (uint32_t base = from; base < to; base += 32) {
    const uint32_t i = base + lane;
    const bool here = i < to && expert_of(p, i) == expert;
    const unsigned mask = __ballot_sync(0xffffffffu, here);
    if (here) {
      const int32_t where = next + __popc(mask & ((1u << lane) - 1u));
      p.tokens[where] = static_cast<int32_t>(i / static_cast<uint32_t>(p.used));
      p.place[i] = where;
    }
    next += __popc(mask);
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

constexpr int kCombineThreads = 128, kTogether = 4;

// grid: (pieces of eight elements of a row, tokens folded)
template <class T, bool Vector>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const CombineParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  if (i >= p.out.dim) return;
  for (int64_t token = blockIdx.y; token < p.out.n; token += gridDim.y) {
    float sums[8] = {};
    for (int first = 0; first < p.used; first += kTogether) {
      // Places before rows: all of either are on their way at once.
      int32_t rows[kTogether];
      float weights[kTogether], f[kTogether][8];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const int slot = min(first + s, p.used - 1);
        rows[s] = p.place[token * p.used + slot];
        weights[s] = p.weights != nullptr ? p.weights[token * p.weights_stride + slot] : 1.0f;
        if (first + s >= p.used) weights[s] = 0.0f;
      }
#pragma unroll
      for (int s = 0; s < kTogether; ++s)
        load8<Vector>(static_cast<const T*>(p.x.data) + rows[s] * p.x.stride_n + i, p.out.dim - i, f[s]);
#pragma unroll
      for (int s = 0; s < kTogether; ++s)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[j] += weights[s] * f[s][j];
    }
    store8<Vector>(static_cast<T*>(p.out.data) + token * p.out.stride_n + i, p.out.dim - i, sums);
  }
}

// `width`: elements of a row for each of `threads`.
Grid rows_of(const View& v, int width, int threads) {
  return {dim3(static_cast<unsigned>(ceil_div(v.dim, width * threads)),
               static_cast<unsigned>(v.n < 32768 ? v.n : 32768)),
          dim3(static_cast<unsigned>(threads))};
}

}  // namespace

void launch_sort(const SortParams& p, Stream stream) {
  check_launch(p.n * p.used < (int64_t{1} << 31) ? cudaSuccess : cudaErrorInvalidValue,
               "sort of more than 2^31 pairs by expert");
  launch("sort", sort_kernel, {dim3(static_cast<unsigned>(p.experts)), dim3(kSortThreads)}, stream, p);
}

void launch_weigh(const WeighParams& p, Stream stream) {
  if (p.out.n == 0) return;
  visit_activations(p.out.type, [&](auto element) {
    launch("weigh", weigh_kernel<decltype(element)>, rows_of(p.out, 1, 256), stream, p);
  });
}

void launch_combine(const CombineParams& p, Stream stream) {
  if (p.out.n == 0) return;
  const bool whole = aligned_tokens(p.out) && aligned_tokens(p.x);
  visit_activations(p.out.type, [&](auto element) {
    using T = decltype(element);
    launch("combine", whole ? combine_kernel<T, true> : combine_kernel<T, false>,
           rows_of(p.out, 8, kCombineThreads), stream, p);
  });
}

}  // namespace sluice::kernels::cuda
