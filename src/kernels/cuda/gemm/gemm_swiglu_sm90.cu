// The gated GEMM of many tokens with bf16 weights on Hopper's warpgroup matrix instructions: out[n, inner] =
// silu(x · gateᵀ) * (x · upᵀ), where the weight stacks [inner, cols] of gate over up. The wide result never goes to
// memory.
//
// A tile is 64 or 128 tokens x as many gate rows, with their up rows, as it takes for all multiprocessors to load an equal
// share of the weights. Tokens are the 64-row operand, one warpgroup for each 64 of them, m64nNk16, sums in registers; a
// gate and its up element are in one thread. One thread of a further warpgroup fills a ring of stages of 64 columns with
// the TMA unit, the weights before the kernel in front has ended. For more than 128 tokens the two blocks of a
// cluster take the same rows and other tokens: each reads half of the weights and sends it to both; clusters walk over
// the tiles in groups of 16 token tiles, so that their part of x stays in the L2 while the weights pass. From 1,024 tokens
// on the warpgroups take tiles in turns, and the one's results are stored under the other's wgmmas.
//
// Operations: 4 · n · inner · cols; bytes: the weights once for every 2048 tokens. On an H200, 28672 x 4096, alone: 57 us
// for 32 and 64 tokens (4.1 TB/s), 60 us for 128. Over and over, at the GPU's power limit, as in a step
// (bench_gpu_gemm): 101 us for 256 (597 TFLOP/s), 373 us for 1,024 (645), 2,818 us for 8,192 (683); cuBLASLt and a
// pass over its result take 116, 414 and 3,098 us.
#include <array>

#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/norm_factors.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kDepth = 64, kSharedLimit = 232448;
constexpr int64_t kMostFactoredTokens = 128;  // all in one block
constexpr int kTogether = 8;  // tiles of tokens whose part of x stays in the L2 while the weights pass

// What the warpgroups of a block do: each takes 64 tokens of one tile, or they take tiles of 128 tokens in turns, and one
// multiplies while the other stores its results.
enum class Groups { One, Two, InTurns };

constexpr int64_t kInTurnsTokens = 1024;  // from here on there are tiles enough for groups to take turns

// Sharers: blocks of a cluster, with the same rows and other tokens.
template <Groups kGroups, int Rows_, int Sharers_>
struct SwigluShape {
  static constexpr int Rows = Rows_, Sharers = Sharers_;
  static constexpr bool kInTurns = kGroups == Groups::InTurns;
  static constexpr int kGroupCount = kGroups == Groups::One ? 1 : 2;
  static constexpr int kParts = kInTurns ? 2 : 1;              // of 64 tokens that a group has of a tile
  static constexpr int kReaders = kInTurns ? 1 : kGroupCount;  // groups of a block that read a stage
  static constexpr int kTokens = 64 * kParts * kReaders;
  static constexpr int kColumns = Rows / 2;  // of the result that a tile makes
  static constexpr int kXBytes = kTokens * 128, kHalfBytes = Rows / 2 * 128;
  static constexpr int kStageBytes = kXBytes + 2 * kHalfBytes;
  static constexpr int kStages = (kSharedLimit - 1024 - 256) / kStageBytes;
  static constexpr int kBarriers = kStages * kStageBytes, kShared = kBarriers + 2 * kStages * 8 + 1024;
  static constexpr int kThreads = 128 + 128 * kGroupCount;
  // Of a thread and 64 tokens; the first that belongs to an up row.
  static constexpr int kSums = Rows / 2, kUp = kSums / 2;
  static_assert(Rows % 32 == 0 && kStages >= 3 && (Sharers == 1 || kTokens == 128));
};
// Registers are given out as to this many threads: fewer of them, and a small kernel fits beside a block of one group.
constexpr int kBoundThreads = 384;

struct SwigluArguments {
  bf16* out;
  int64_t out_stride;
  int n, inner;                       // inner: results of a token, and from a gate row to its up row
  int steps;                          // of kDepth columns
  int tiles, row_tiles, token_tiles;  // of a cluster; tiles: their product
  int x_rows;                         // of x in a stage
  NormFactors factors;                // where a block has all tokens
};

// Of one block.
struct SwigluTile {
  int token, column;
};
template <class S>
__device__ __forceinline__ SwigluTile tile_of(const SwigluArguments& p, int index) {
  if constexpr (S::Sharers == 1) return {0, index * S::kColumns};
  const int group = index / (kTogether * p.row_tiles), within = index % (kTogether * p.row_tiles);
  const int first = group * kTogether, rank = static_cast<int>(cluster_rank());
  const int left = p.token_tiles - first;  // none for an index beyond the last tile
  const int together = left < 1 ? 1 : left < kTogether ? left : kTogether;
  return {((first + within % together) * S::Sharers + rank) * S::kTokens, within / together * S::kColumns};
}
template <class S>
__device__ __forceinline__ int tiles_of_cluster(const SwigluArguments& p) {
  const int cluster = blockIdx.x / S::Sharers, clusters = gridDim.x / S::Sharers;
  return (p.tiles - cluster + clusters - 1) / clusters;
}
// Where a block stands: step `step` of its tile number `number`, which uses stage `stage` for the `round`th time. Kept
// from step to step, since divisions would take longer than a step's wgmmas.
template <class S>
struct SwigluCursor {
  int number = 0, step = 0, stage = 0, round = 0;
  SwigluTile tile;

  __device__ __forceinline__ explicit SwigluCursor(const SwigluArguments& p) { find_tile(p); }
  __device__ __forceinline__ void find_tile(const SwigluArguments& p) {
    tile = tile_of<S>(p, (blockIdx.x + number * gridDim.x) / S::Sharers);
  }
  __device__ __forceinline__ void next_stage() {
    if (++stage == S::kStages) stage = 0, ++round;
  }
  __device__ __forceinline__ void next(const SwigluArguments& p) {
    next_stage();
    if (++step < p.steps) return;
    step = 0;
    ++number;
    find_tile(p);
  }
  // From the end of a tile to the start of the one after the next.
  __device__ __forceinline__ void skip_tile(const SwigluArguments& p) {
    ++number;
    const int at = stage + p.steps;
    stage = at % S::kStages;
    round += at / S::kStages;
    find_tile(p);
  }
};

template <class S>
__device__ __forceinline__ void load_tiles(const SwigluArguments& p, const CUtensorMap* x,
                                           const CUtensorMap* weights, uint32_t shared) {
  constexpr uint16_t kBoth = 3;
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  const int total = tiles_of_cluster<S>(p) * p.steps;
  const uint32_t stage_bytes = static_cast<uint32_t>(p.x_rows + S::Rows) * 128;
  const auto load_weights = [&](const SwigluCursor<S>& at) {
    const int column = at.step * kDepth, row = at.tile.column;
    const uint32_t to = shared + at.stage * S::kStageBytes + S::kXBytes, barrier = full + 8 * at.stage;
    barrier_expect(barrier, stage_bytes);
    if constexpr (S::Sharers == 2) {
      const int rank = static_cast<int>(cluster_rank());
      tma_load_2d_multicast(to + rank * S::kHalfBytes, weights, column, row + rank * p.inner, barrier, kBoth);
    } else {
      tma_load_2d(to, weights, column, row, barrier);
      tma_load_2d(to + S::kHalfBytes, weights, column, row + p.inner, barrier);
    }
  };
  const auto load_x = [&](const SwigluCursor<S>& at) {
    tma_load_2d(shared + at.stage * S::kStageBytes, x, at.step * kDepth, at.tile.token, full + 8 * at.stage);
  };
  const int ahead = total < S::kStages ? total : S::kStages;
  SwigluCursor<S> cursor(p);
  for (int i = 0; i < ahead; ++i, cursor.next(p)) load_weights(cursor);
  wait_for_producer();
  cursor = SwigluCursor<S>(p);
  for (int i = 0; i < ahead; ++i, cursor.next(p)) load_x(cursor);
  for (int i = ahead; i < total; ++i, cursor.next(p)) {
    barrier_wait(empty + 8 * cursor.stage, (cursor.round - 1) & 1);
    load_weights(cursor);
    load_x(cursor);
  }
}

__device__ __forceinline__ float gate_silu(float g, float u) {
  return __fdividef(g, 1.0f + __expf(-g)) * u;
}

// Of the tokens whose sums a lane has: rows lane / 4 and lane / 4 + 8 of a warp's 16.
struct TokenFactors {
  float of[2] = {1.0f, 1.0f};

  TokenFactors() = default;
  __device__ __forceinline__ TokenFactors(const NormFactors& f, int first, int n) {
    if (f.squares == nullptr) return;
    const int lane = threadIdx.x % 32, from = (lane / 4 % 4) * 8;
    float all[4];  // of tokens first + lane / 8, and each fourth behind it
    load_factors(f, first + lane / 8, 4, n, all);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float low = __shfl_sync(0xffffffffu, all[2 * half], from),
                  high = __shfl_sync(0xffffffffu, all[2 * half + 1], from);
      of[half] = lane < 16 ? low : high;
    }
  }
};

// A warp's 16 tokens from `first` on, eight columns to a lane.
template <class S>
__device__ __forceinline__ void store_results(const SwigluArguments& p, const float (&sums)[S::kSums],
                                              int first, int first_column, const TokenFactors& factors) {
  const int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int pair = 0; pair < S::kColumns / 16; ++pair) {
    uint32_t v[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      // q = 0, 1: rows g and g + 8 of the first eight columns; 2, 3: of the next eight
      const int at = (2 * pair + (q >> 1)) * 4 + (q & 1) * 2;
      const float factor = S::Sharers == 1 ? factors.of[q & 1] : 1.0f;
      v[q] = pack_pair(gate_silu(sums[at] * factor, sums[at + S::kUp] * factor),
                       gate_silu(sums[at + 1] * factor, sums[at + 1 + S::kUp] * factor));
    }
    transpose_four(v, t);
    const int column = first_column + (2 * pair + (t >> 1)) * 8, token = first + g + (t & 1) * 8;
    if (token < p.n && column < p.inner)
      *reinterpret_cast<uint4*>(p.out + token * p.out_stride + column) = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

// Groups in turns: a group waits until the other has issued all wgmmas of the tile before.
__device__ __forceinline__ void await_turn(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void give_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory");
}

template <class S>
__device__ __forceinline__ void multiply_tiles(const SwigluArguments& p, uint32_t shared) {
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, tiles = tiles_of_cluster<S>(p);
  const int first_part = S::kInTurns ? 0 : group;  // of the tile's parts of 64 tokens
  float sums[S::kParts][S::kSums];
  TokenFactors factors;
  if constexpr (S::Sharers == 1) factors = TokenFactors(p.factors, group * 64 + thread / 32 * 16, p.n);
  const auto give_back = [&](int stage) {
    if (thread < S::Sharers) barrier_arrive_at(empty + 8 * stage, thread);
  };
  SwigluCursor<S> cursor(p);
  if (S::kInTurns && group == 1) cursor.skip_tile(p);
  while (cursor.number < tiles) {
    const SwigluTile tile = cursor.tile;
    if (S::kInTurns && cursor.number > 0) await_turn(group);
    int before = 0;  // the stage of the step before
    for (int step = 0; step < p.steps; ++step) {
      barrier_wait(full + 8 * cursor.stage, cursor.round & 1);
      const uint32_t stage = shared + cursor.stage * S::kStageBytes;
      const uint64_t b = describe_operand(stage + S::kXBytes);
      cute::warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) {
#pragma unroll
        for (int part = 0; part < S::kParts; ++part) {
          const uint64_t a = describe_operand(stage + (first_part + part) * 64 * 128);
          multiply(sums[part], a + 2 * k, b + 2 * k, step != 0 || k != 0 ? 1 : 0);
        }
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      if (step > 0) give_back(before);
      before = cursor.stage;
      cursor.next_stage();
    }
    ++cursor.number;
    if (S::kInTurns && cursor.number < tiles) give_turn(1 - group);
    cute::warpgroup_wait<0>();
#pragma unroll
    for (auto& part : sums)
#pragma unroll
      for (float& sum : part) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    give_back(before);
#pragma unroll
    for (int part = 0; part < S::kParts; ++part)
      store_results<S>(p, sums[part], tile.token + (first_part + part) * 64 + thread / 32 * 16, tile.column,
                       factors);
    if constexpr (S::kInTurns) {
      cursor.skip_tile(p);
    } else {
      cursor.find_tile(p);
    }
  }
}

template <class S>
__global__ void __cluster_dims__(S::Sharers) __launch_bounds__(kBoundThreads, 1)
    gemm_swiglu_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
                       const SwigluArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  const uint32_t shared = shared_address(raw) + bytes_to_aligned(raw);
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, S::kReaders * S::Sharers);
    }
    barriers_ready();
  }
  allow_dependents();
  if constexpr (S::Sharers > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < 128) {
    if constexpr (S::kGroupCount > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x < 32 && one_lane()) load_tiles<S>(p, &x, &weights, shared);
  } else {
    if constexpr (S::kGroupCount > 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    wait_for_producer();
    multiply_tiles<S>(p, shared);
  }
  if constexpr (S::Sharers > 1) cluster_sync();
}

CUtensorMap map_of(const void* data, int64_t columns, int64_t rows, int64_t row_bytes, int64_t box_rows) {
  return make_tensor_map(data, {2,
                                {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)},
                                {static_cast<uint64_t>(row_bytes)},
                                {64, static_cast<uint32_t>(box_rows)}});
}

template <class S>
void launch_shape(const GemmParams& p, Stream stream) {
  static const int at_once = multiprocessors() / S::Sharers;
  static const cudaError_t attribute =
      cudaFuncSetAttribute(gemm_swiglu_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "gemm_swiglu");
  SwigluArguments arguments{};
  arguments.out = static_cast<bf16*>(p.out.data);
  arguments.out_stride = p.out.stride_n;
  arguments.n = static_cast<int>(p.x.n);
  arguments.inner = static_cast<int>(p.out.dim);
  arguments.steps = static_cast<int>(ceil_div(p.weight.cols, kDepth));
  arguments.row_tiles = static_cast<int>(ceil_div(p.out.dim, S::kColumns));
  arguments.token_tiles = static_cast<int>(ceil_div(p.x.n, S::kTokens * S::Sharers));
  arguments.tiles = arguments.row_tiles * arguments.token_tiles;
  // The rest of a stage holds what it held; no result depends on it.
  arguments.factors = p.factors;
  arguments.x_rows = S::Sharers == 1 ? static_cast<int>(ceil_div(p.x.n, 8) * 8) : S::kTokens;
  const CUtensorMap x = map_of(p.x.data, p.weight.cols, p.x.n, p.x.stride_n * 2, arguments.x_rows);
  const CUtensorMap weights =
      map_of(p.weight.data, p.weight.cols, p.weight.rows, p.weight.row_bytes, S::kColumns);
  const int clusters = arguments.tiles < at_once ? arguments.tiles : at_once;
  const Grid grid{dim3(static_cast<unsigned>(clusters * S::Sharers)), dim3(S::kThreads), S::kShared};
  launch("gemm_swiglu", gemm_swiglu_kernel<S>, grid, stream, x, weights, arguments);
}

// A shape as the host chooses it.
struct Kind {
  int columns, sharers;
  void (*launch)(const GemmParams&, Stream);
};
template <Groups kGroups, int Rows, int Sharers>
constexpr Kind kind() {
  using S = SwigluShape<kGroups, Rows, Sharers>;
  return {S::kColumns, Sharers, launch_shape<S>};
}
template <Groups kGroups>
constexpr std::array<Kind, 4> kFewTokens{kind<kGroups, 160, 1>(), kind<kGroups, 192, 1>(),
                                         kind<kGroups, 224, 1>(), kind<kGroups, 256, 1>()};
constexpr std::array<Kind, 2> kManyTokens{kind<Groups::Two, 224, 2>(), kind<Groups::Two, 256, 2>()};

// The one whose clusters load the least, one tile after the other; the widest among equals.
template <size_t Count>
const Kind& choose(const std::array<Kind, Count>& kinds, int64_t inner, int64_t token_tiles) {
  static const int processors = multiprocessors();
  const Kind* best = nullptr;
  int64_t least = 0;
  for (const Kind& candidate : kinds) {
    const int64_t tiles = ceil_div(inner, candidate.columns) * token_tiles;
    const int64_t cost = ceil_div(tiles, processors / candidate.sharers) * candidate.columns;
    if (best == nullptr || cost <= least) best = &candidate, least = cost;
  }
  return *best;
}

}  // namespace

bool gemm_swiglu_fits(const GemmParams& p) {
  const auto even = [](int64_t elements) { return elements % 8 == 0; };
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16 && p.bias == nullptr &&
         p.weight.rows == 2 * p.out.dim && aligned16(p.weight.data) && aligned16(p.x.data) &&
         aligned16(p.out.data) && p.weight.row_bytes % 16 == 0 && even(p.x.stride_n) &&
         even(p.out.stride_n) && even(p.out.dim) && p.x.stride_n >= p.weight.cols &&
         p.out.stride_n >= p.out.dim && p.weight.rows < (1 << 30) && p.x.n < (1 << 24) &&
         norm_factors_fit(p) && (p.factors.squares == nullptr || p.x.n <= kMostFactoredTokens) &&
         p.sum.out == nullptr;
}

bool gemm_swiglu_busy(const GemmParams& p) {
  static const int processors = multiprocessors();
  return 4 * ceil_div(p.out.dim, choose(kFewTokens<Groups::One>, p.out.dim, 1).columns) >= 3 * processors;
}

void launch_gemm_swiglu(const GemmParams& p, Stream stream) {
  const int64_t inner = p.out.dim;
  if (p.x.n <= 64) return choose(kFewTokens<Groups::One>, inner, 1).launch(p, stream);
  if (p.x.n <= 128) return choose(kFewTokens<Groups::Two>, inner, 1).launch(p, stream);
  if (p.x.n >= kInTurnsTokens) return launch_shape<SwigluShape<Groups::InTurns, 192, 2>>(p, stream);
  choose(kManyTokens, inner, ceil_div(p.x.n, 256)).launch(p, stream);
}

}  // namespace sluice::kernels::cuda
