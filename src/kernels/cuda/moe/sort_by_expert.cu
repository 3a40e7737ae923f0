// Mixtures of experts: pairs (token, slot) sorted by expert, and the way back: the weighted sum of what a token's experts
// gave.
#include "kernels/cuda/moe/mix.cuh"
#include "kernels/cuda/moe/route.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kSortThreads = 1024, kSortWarps = kSortThreads / 32;

// The expert of a pair: chosen by this block, where the router's logits are given, or by a kernel in front.
struct PairExperts {
  const SortParams& p;
  const int32_t* chosen;  // or null

  __device__ __forceinline__ int of(uint32_t pair) const {
    if (chosen != nullptr) return chosen[pair];
    if (p.ids_stride == p.used) return p.ids[pair];
    const uint32_t used = p.used, token = pair / used;
    return p.ids[token * p.ids_stride + (pair - token * used)];
  }
};

// Every block chooses for all tokens, since each needs all choices; the first stores them.
template <int Each>
__device__ __forceinline__ void choose_all(const SortParams& p, int32_t* chosen) {
  const int lane = threadIdx.x % 32;
  for (int64_t token = threadIdx.x / 32; token < p.n; token += kSortWarps) {
    const Chosen own = choose_experts<float, Each>(p.route, token);
    if (lane < p.used) chosen[token * p.used + lane] = own.expert;
    if (blockIdx.x == 0) store_choice(p.route, token, own);
  }
  __syncthreads();
}

// The rows of the expert's tokens, which this block has placed from `begin` on.
__device__ __forceinline__ void gather_rows(const SortParams& p, const int32_t* tokens, int begin,
                                            int count) {
  const auto pieces = static_cast<uint32_t>(p.x.dim / 8);
  const auto* x = static_cast<const bf16*>(p.x.data);
  bf16* out = static_cast<bf16*>(p.rows) + begin * p.x.dim;
  for (uint32_t i = threadIdx.x; i < count * pieces; i += kSortThreads) {
    const uint32_t entry = i / pieces, column = (i - entry * pieces) * 8;
    const uint4 piece = load_activation(x + tokens[entry] * p.x.stride_n + column);
    *reinterpret_cast<uint4*>(out + entry * p.x.dim + column) = piece;
  }
}

// A block for each expert, which reads the experts of all pairs twice, a range of them in each warp: first to count its own
// and those that come before, then to place its own in the order of the tokens. Each: as choose_experts() has it; 0: the
// choice is there.
template <int Each>
__global__ void __launch_bounds__(kSortThreads) sort_kernel(const __grid_constant__ SortParams p) {
  __shared__ int32_t own[kSortWarps], before[kSortWarps];
  __shared__ int32_t chosen[Each > 0 ? kMostRoutedTokens * 32 : 1], tokens[kMostGatheredTokens];
  allow_dependents();
  wait_for_producer();
  if constexpr (Each > 0) choose_all<Each>(p, chosen);
  const PairExperts experts{p, Each > 0 ? chosen : nullptr};
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t pairs = p.n * p.used, each = (pairs + kSortThreads - 1) / kSortThreads * 32;
  const uint32_t from = min(warp * each, pairs), to = min(from + each, pairs);
  int32_t mine = 0, less = 0;
#pragma unroll 8
  for (uint32_t i = from + lane; i < to; i += 32) {
    const int of = experts.of(i);
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
    if (expert == 0) p.counters[0] = p.counters[1] = 0;
  }
#pragma unroll 8
  for (uint32_t base = from; base < to && mine > 0; base += 32) {
    const uint32_t i = base + lane;
    const bool here = i < to && experts.of(i) == expert;
    const unsigned mask = __ballot_sync(0xffffffffu, here);
    if (here) {
      const int32_t where = next + __popc(mask & ((1u << lane) - 1u));
      const auto token = static_cast<int32_t>(i / static_cast<uint32_t>(p.used));
      p.tokens[where] = token;
      p.place[i] = where;
      if (p.rows != nullptr) tokens[where - begin] = token;
    }
    next += __popc(mask);
  }
  if (p.rows == nullptr) return;
  __syncthreads();
  gather_rows(p, tokens, begin, __reduce_add_sync(0xffffffffu, own[lane]));
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

constexpr int kCombineThreads = 128;

// grid: (pieces of eight elements of a row, tokens folded)
template <class T, bool Vector>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const CombineParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
  if (i >= p.out.dim) return;
  for (int64_t token = blockIdx.y; token < p.out.n; token += gridDim.y) {
    float sums[8];
    mix8<T, Vector>(p, token, i, sums);
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
  const Grid grid{dim3(static_cast<unsigned>(p.experts)), dim3(kSortThreads)};
  if (p.route.logits.data == nullptr) return launch("sort", sort_kernel<0>, grid, stream, p);
  launch("route and sort", p.route.experts <= 128 ? sort_kernel<4> : sort_kernel<8>, grid, stream, p);
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
