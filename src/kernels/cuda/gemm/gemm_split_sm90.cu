// GEMMs of a batch's decode phase, some 33 to 256 tokens, on Hopper's warpgroup matrix instructions: bf16, or scaled fp8 on
// both sides; gated or not.
//
// With so many tokens the weights' bytes are still most of the work, and a matrix of 4,096 rows has too few tiles for all
// multiprocessors. So the blocks of a cluster take the same rows and tokens and other columns, and meet in their shared
// memories at the end: a block multiplies all tokens by kRows rows over its share of the columns, writes its sums to
// shared memory, and adds up those of all blocks of the cluster, first to last, for its share of the tokens. Every block
// has one tile: what is chosen is how many rows and how many shares let all multiprocessors read an equal part.
//
// Tokens are the 64-row operand, one or two times 64 of them for each of one or two warpgroups; sums in registers. One
// thread of a further warpgroup fills a ring of stages, 128 bytes of every row, with the TMA unit, the weights before the
// kernel in front has ended. Bytes: the weights once, x once for every tile of rows. A matrix has the same shares for all
// numbers of tokens that use the same tile.
#include <algorithm>
#include <array>

#include "kernels/cuda/gemm/gemm_split_tile.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr std::array<int, 4> kShares{1, 2, 4, 8};  // blocks of a cluster

template <class S>
__device__ __forceinline__ void load_stages(const SplitArguments& p, const CUtensorMap* x,
                                            const CUtensorMap* weights, uint32_t shared, int first,
                                            int count) {
  const uint32_t full = shared, empty = full + 8 * kMostStages;
  const int row = first_row(p);
  constexpr int kBoxWidth = 64;  // two fp8 elements travel as one of bf16
  const auto bytes = static_cast<uint32_t>(p.x_rows + S::kRows) * 128;
  const auto load_weights = [&](int i, int stage) {
    const uint32_t to = shared + S::kRing + stage * S::kStageBytes + S::kXBytes, barrier = full + 8 * stage;
    barrier_expect(barrier, bytes);
    const int column = (first + i) * kBoxWidth;
    tma_load_2d(to, weights, column, row, barrier);
    tma_load_2d(to + S::kHalfBytes, weights, column, row + p.second, barrier);
  };
  const auto load_x = [&](int i, int stage) {
    tma_load_2d(shared + S::kRing + stage * S::kStageBytes, x, (first + i) * kBoxWidth, 0, full + 8 * stage);
  };
  const int ahead = count < p.stages ? count : p.stages;
  for (int i = 0; i < ahead; ++i) load_weights(i, i);
  wait_for_producer();
  for (int i = 0; i < ahead; ++i) load_x(i, i);
  int stage = 0, round = 0;
  for (int i = p.stages; i < count; ++i) {
    barrier_wait(empty + 8 * stage, round & 1);
    load_weights(i, stage);
    load_x(i, stage);
    if (++stage == p.stages) stage = 0, ++round;
  }
}

// This group's sums over the block's share of the columns, to shared memory.
template <class S>
__device__ __forceinline__ void multiply_stages(uint32_t shared, float* sums_at, int count, int stages) {
  using E = typename S::Element;
  const uint32_t full = shared, empty = full + 8 * kMostStages;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  float sums[S::kParts][S::kSums];
#pragma unroll
  for (auto& part : sums)
#pragma unroll
    for (float& sum : part) sum = 0.0f;
  int stage = 0, round = 0, before = 0;
  for (int i = 0; i < count; ++i) {
    barrier_wait(full + 8 * stage, round & 1);
    const uint32_t at = shared + S::kRing + stage * S::kStageBytes;
    const uint64_t b = describe_operand(at + S::kXBytes);
    cute::warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // of 32 bytes of a row
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) {
        const uint64_t a = describe_operand(at + (group * S::kParts + part) * 64 * 128);
        multiply<E>(sums[part], a + 2 * k, b + 2 * k, 1);
      }
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<1>();
    if (i > 0 && thread == 0) barrier_arrive(empty + 8 * before);
    before = stage;
    if (++stage == stages) stage = 0, ++round;
  }
  cute::warpgroup_wait<0>();
#pragma unroll
  for (auto& part : sums)
#pragma unroll
    for (float& sum : part) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
  // Every stage has been read by both groups before one of them writes over it.
  asm volatile("bar.sync 1, %0;" ::"n"(128 * S::kGroups) : "memory");
  const int lane = thread % 32, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int part = 0; part < S::kParts; ++part) {
    float* token = sums_at + ((group * S::kParts + part) * 64 + thread / 32 * 16 + g) * S::kPitch + 2 * t;
#pragma unroll
    for (int j = 0; j < S::kRows / 8; ++j) {
      *reinterpret_cast<float2*>(token + 8 * j) = make_float2(sums[part][4 * j], sums[part][4 * j + 1]);
      *reinterpret_cast<float2*>(token + 8 * j + 8 * S::kPitch) =
          make_float2(sums[part][4 * j + 2], sums[part][4 * j + 3]);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_split_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
                      const SplitArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  uint8_t* const base = raw + bytes_to_aligned(raw);
  const uint32_t shared = shared_address(base);
  const uint32_t full = shared, empty = full + 8 * kMostStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, S::kGroups);
    }
    barriers_ready();
  }
  allow_dependents();
  __syncthreads();
  const int first = static_cast<int>(cluster_rank()) * p.per_part;
  const int count = p.steps - first < p.per_part ? p.steps - first : p.per_part;
  const bool alone = cluster_size() == 1;
  float* const factors = reinterpret_cast<float*>(base + S::kFactors);
  if (threadIdx.x < 128) {
    if (threadIdx.x < 32 && one_lane()) load_stages<S>(p, &x, &weights, shared, first, count);
    if (alone) return;
    __syncwarp();
    cluster_sync();
  } else {
    if (p.sum.gain != nullptr && threadIdx.x < 128 + S::kRows / 32)
      prefetch_to_l2(p.sum.gain + min(first_row(p) + 32 * (static_cast<int>(threadIdx.x) - 128), p.rows - 1));
    wait_for_producer();
    if (p.factors.squares != nullptr) keep_factors<S>(p, factors);
    multiply_stages<S>(shared, reinterpret_cast<float*>(base + S::kRing), count, p.stages);
    const Before<S> before(p);
    if (alone) {
      asm volatile("bar.sync 1, %0;" ::"n"(128 * S::kGroups) : "memory");
    } else {
      cluster_sync();
    }
    store_share<S>(p, shared + S::kRing, factors, before);
  }
  if (!alone) cluster_sync();  // a block's sums stay until all have read them
}

// A tile's shape as the host chooses it.
struct Kind {
  int rows;
  void (*launch)(const GemmSplitParams&, int shares, Stream);
};

CUtensorMap map_of(const void* data, int64_t row_elements, int64_t rows, int64_t row_bytes,
                   int64_t box_rows) {
  return make_tensor_map(data, {2,
                                {static_cast<uint64_t>(row_elements), static_cast<uint64_t>(rows)},
                                {static_cast<uint64_t>(row_bytes)},
                                {64, static_cast<uint32_t>(box_rows)}});
}

bool is_fp8(const GemmParams& p) {
  return p.weight.type == DType::F8_E4M3;
}

template <class S>
void launch_shape(const GemmSplitParams& s, int shares, Stream stream) {
  static const cudaError_t attribute =
      cudaFuncSetAttribute(gemm_split_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "gemm_split");
  const GemmParams& p = s.gemm;
  const int64_t element_bytes = sizeof(typename S::Element), words = p.weight.cols * element_bytes / 2;
  SplitArguments a{};
  a.out = static_cast<bf16*>(p.out.data);
  a.bias = p.bias;
  a.scales = p.weight.scales;
  a.x_scales = s.x_scales;
  a.out_stride = p.out.stride_n;
  a.n = static_cast<int>(p.x.n);
  a.rows = static_cast<int>(p.out.dim);
  a.steps = static_cast<int>(ceil_div(p.weight.cols, S::kDepth));
  a.per_part = static_cast<int>(ceil_div(a.steps, shares));
  a.gated = s.gated;
  a.activation = s.activation;
  a.factors = p.factors;
  a.sum = p.sum;
  a.columns = s.gated != 0 ? S::kRows / 2 : S::kRows;
  a.second = s.gated != 0 ? a.rows : S::kRows / 2;
  a.x_rows = static_cast<int>(ceil_div(p.x.n, 8) * 8);
  const CUtensorMap x = map_of(p.x.data, words, p.x.n, p.x.stride_n * element_bytes, a.x_rows);
  const auto* data = static_cast<const uint8_t*>(p.weight.data) + (is_fp8(p) ? kFp8Header : 0);
  const CUtensorMap weights = map_of(data, words, p.weight.rows, p.weight.row_bytes, S::kRows / 2);
  const int64_t tiles = ceil_div(a.rows, a.columns);
  a.stages = std::min(S::kStages, a.per_part);
  const Grid grid{dim3(static_cast<unsigned>(tiles * shares)), dim3(S::kThreads),
                  static_cast<size_t>(S::shared_of(a.stages)), static_cast<unsigned>(shares)};
  launch("gemm_split", gemm_split_kernel<S>, grid, stream, x, weights, a);
}

template <class E, int kGroups, int kParts, int... kRows>
constexpr auto kinds() {
  return std::to_array<Kind>({{kRows, launch_shape<SplitShape<E, kGroups, kParts, kRows>>}...});
}
template <class E>
struct Kinds {
  static constexpr auto k64 = kinds<E, 1, 1, 32, 64, 96, 128, 192, 224, 256>();
  static constexpr auto k128 = kinds<E, 2, 1, 64, 96, 128, 192, 224, 256>();
  static constexpr auto k256 = kinds<E, 2, 2, 64, 96, 128>();
};

// Blocks of clusters of `shares` that run at a time: a GPU's partitions have some multiprocessors more than whole clusters
// take.
int blocks_at_once(int shares) {
  static const std::array<int, 9> known = [] {
    using S = SplitShape<bf16, 2, 1, 128>;
    check_launch(
        cudaFuncSetAttribute(gemm_split_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared),
        "gemm_split");
    std::array<int, 9> blocks{};
    for (const int size : kShares) {
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(static_cast<unsigned>(size));
      config.blockDim = dim3(S::kThreads);
      config.dynamicSmemBytes = S::kShared;
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
      config.attrs = &attribute;
      config.numAttrs = 1;
      int clusters = 0;
      check_launch(cudaOccupancyMaxActiveClusters(&clusters, gemm_split_kernel<S>, &config), "gemm_split");
      blocks[static_cast<size_t>(size)] = clusters * size;
    }
    return blocks;
  }();
  return known[static_cast<size_t>(shares)];
}

struct Choice {
  const Kind* kind = nullptr;
  int shares = 0;
  double cost = 0;
};

// Weighs what all blocks together bring from memory against what the busiest one brings to its shared memory, in bytes
// that a multiprocessor takes at its share of the bandwidth.
double cost_of(const GemmSplitParams& s, int rows, int shares, int depth) {
  const int64_t columns = s.gated != 0 ? rows / 2 : rows, tiles = ceil_div(s.gemm.out.dim, columns);
  if (tiles * shares > blocks_at_once(shares)) return -1;
  const int64_t steps = ceil_div(s.gemm.weight.cols, depth), each = ceil_div(steps, shares);
  if ((shares - 1) * each >= steps) return -1;
  const int64_t tokens = ceil_div(s.gemm.x.n, 8) * 8;
  const double processors = multiprocessors();
  const double memory = static_cast<double>(tiles * shares * each * rows) * 128 / processors;
  const double block = static_cast<double>(each * (rows + tokens)) * 128 / 2.2;
  // Sums that travel within a cluster, and the meetings of its blocks.
  const double sums = static_cast<double>(tokens * rows * 4) * (shares - 1) / shares;
  const double meeting = shares == 1 ? 0 : (shares == 8 ? 28e3 : 20e3) + 3 * sums;  // eight find room later
  return std::max(memory, block) + meeting;
}

template <size_t Count>
Choice choose(const std::array<Kind, Count>& kinds, const GemmSplitParams& s, int depth) {
  Choice best;
  for (const Kind& kind : kinds) {
    if (s.tile_rows > 0 && kind.rows != s.tile_rows) continue;
    for (const int shares : kShares) {
      if (s.shares > 0 && shares != s.shares) continue;
      const double cost = cost_of(s, kind.rows, shares, depth);
      if (cost >= 0 && (best.kind == nullptr || cost < best.cost)) best = {&kind, shares, cost};
    }
  }
  return best;
}

template <class E>
Choice choose_among(const GemmSplitParams& s) {
  constexpr int kDepth = 128 / static_cast<int>(sizeof(E));
  if (s.gemm.x.n <= 64) return choose(Kinds<E>::k64, s, kDepth);
  if (s.gemm.x.n <= 128) return choose(Kinds<E>::k128, s, kDepth);
  return choose(Kinds<E>::k256, s, kDepth);
}

Choice choice_of(const GemmSplitParams& s) {
  return is_fp8(s.gemm) ? choose_among<Fp8Element>(s) : choose_among<bf16>(s);
}

}  // namespace

bool gemm_split_fits(const GemmSplitParams& s) {
  const GemmParams& p = s.gemm;
  const bool fp8 = is_fp8(p) && p.weight.scales != nullptr, plain = p.weight.type == DType::BF16;
  const int64_t bytes = fp8 ? 1 : 2;
  return (fp8 || plain) && p.x.n >= 1 && p.x.n <= kMostSplitTokens && p.out.type == DType::BF16 &&
         aligned16(p.weight.data) && aligned16(p.x.data) && aligned16(p.out.data) &&
         p.weight.row_bytes % 16 == 0 && p.x.stride_n * bytes % 16 == 0 && p.weight.cols * bytes % 16 == 0 &&
         p.out.stride_n % 8 == 0 && p.out.dim % 8 == 0 && p.x.stride_n >= p.weight.cols &&
         p.weight.rows < (1 << 30) && p.weight.rows == (s.gated != 0 ? 2 : 1) * p.out.dim &&
         (plain || p.factors.squares == nullptr) && norm_factors_fit(p) &&
         (p.sum.out == nullptr || (plain && s.gated == 0)) && normed_sum_fits(p, kSplitSquares) &&
         choice_of(s).kind != nullptr;
}

void launch_gemm_split(const GemmSplitParams& s, Stream stream) {
  const Choice choice = choice_of(s);
  choice.kind->launch(s, choice.shares, stream);
}

}  // namespace sluice::kernels::cuda
