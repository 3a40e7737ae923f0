// The gated product of many tokens with bf16 weights on Hopper's warpgroup matrix instructions: out[n, inner] =
// silu(x · gateᵀ) * (x · upᵀ), where the weight stacks [inner, cols] of gate over up. The wide result never goes to
// memory.
//
// A tile is 64 or 128 tokens x as many gate rows, with their up rows, as it takes for all multiprocessors to load an equal
// share of the weights. Tokens are the 64-row operand, one warpgroup for each 64 of them, m64nNk16, sums in registers; a
// gate and its up element are in one thread. One thread of a further warpgroup fills a ring of stages of 64 columns with
// the tensor copy engine, the weights before the kernel in front has ended. For more than 128 tokens the two blocks of a
// cluster take the same rows and other tokens: each reads half of the weights and sends it to both; clusters walk over
// the tiles in groups of 16 token tiles, so that their part of x stays in the L2 while the weights pass. Operations:
// 4 · n · inner · cols; bytes: the weights once for every 2048 tokens. On an H200, 28672 x 4096: 57 us for 32 and 64
// tokens (4.1 TB/s), 60 us for 128, 87 us for 256 (694 TFLOP/s), 2,818 us for 8,192 (683 TFLOP/s); cuBLASLt and a pass
// over its result take 65, 65, 76, 112 and 3,140 us.
#include <array>

#include "kernels/cuda/params.h"
#include "kernels/cuda/warpgroup.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kDepth = 64, kSharedLimit = 232448;
constexpr int kTogether = 8;  // tiles of tokens whose part of x stays in the L2 while the weights pass

// Sharers: blocks of a cluster, with the same rows and other tokens.
template <int Groups_, int Rows_, int Sharers_>
struct WideShape {
  static constexpr int Groups = Groups_, Rows = Rows_, Sharers = Sharers_;
  static constexpr int kTokens = 64 * Groups;
  static constexpr int kColumns = Rows / 2;  // of the result that a tile makes
  static constexpr int kXBytes = kTokens * 128, kHalfBytes = Rows / 2 * 128;
  static constexpr int kStageBytes = kXBytes + 2 * kHalfBytes;
  static constexpr int kStages = (kSharedLimit - 1024 - 256) / kStageBytes;
  static constexpr int kBarriers = kStages * kStageBytes, kShared = kBarriers + 2 * kStages * 8 + 1024;
  static constexpr int kThreads = 128 + 128 * Groups;
  static constexpr int kSums = Rows / 2, kUp = kSums / 2;  // of a thread; the first that belongs to an up row
  static_assert(Rows % 32 == 0 && kStages >= 3 && (Sharers == 1 || Groups == 2));
};
// Registers are given out as to this many threads: fewer of them, and a small kernel fits beside a block of one group.
constexpr int kBoundThreads = 384;

struct WideArguments {
  bf16* out;
  int64_t out_stride;
  int n, inner;                       // inner: results of a token, and from a gate row to its up row
  int steps;                          // of kDepth columns
  int tiles, row_tiles, token_tiles;  // of a cluster; tiles: their product
  int x_rows;                         // of x in a stage
};

// Of one block.
struct WideTile {
  int token, column;
};
template <class S>
__device__ __forceinline__ WideTile tile_of(const WideArguments& p, int index) {
  if constexpr (S::Sharers == 1) return {0, index * S::kColumns};
  const int group = index / (kTogether * p.row_tiles), within = index % (kTogether * p.row_tiles);
  const int first = group * kTogether, rank = static_cast<int>(cluster_rank());
  const int together = p.token_tiles - first < kTogether ? p.token_tiles - first : kTogether;
  return {((first + within % together) * S::Sharers + rank) * S::kTokens, within / together * S::kColumns};
}
template <class S>
__device__ __forceinline__ int tiles_of_cluster(const WideArguments& p) {
  const int cluster = blockIdx.x / S::Sharers, clusters = gridDim.x / S::Sharers;
  return (p.tiles - cluster + clusters - 1) / clusters;
}
// Of this block's tile number `number`.
template <class S>
__device__ __forceinline__ WideTile own_tile(const WideArguments& p, int number) {
  return tile_of<S>(p, (blockIdx.x + number * gridDim.x) / S::Sharers);
}

template <class S>
__device__ __forceinline__ void load_tiles(const WideArguments& p, const CUtensorMap* x,
                                           const CUtensorMap* weights, uint32_t shared) {
  constexpr uint16_t kBoth = 3;
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  const int total = tiles_of_cluster<S>(p) * p.steps;
  const uint32_t stage_bytes = static_cast<uint32_t>(p.x_rows + S::Rows) * 128;
  const auto load_weights = [&](int i) {
    const int s = i % S::kStages, column = i % p.steps * kDepth, row = own_tile<S>(p, i / p.steps).column;
    const uint32_t to = shared + s * S::kStageBytes + S::kXBytes, barrier = full + 8 * s;
    barrier_expect(barrier, stage_bytes);
    if constexpr (S::Sharers == 2) {
      const int rank = static_cast<int>(cluster_rank());
      copy_box_2d_to(to + rank * S::kHalfBytes, weights, column, row + rank * p.inner, barrier, kBoth);
    } else {
      copy_box_2d(to, weights, column, row, barrier);
      copy_box_2d(to + S::kHalfBytes, weights, column, row + p.inner, barrier);
    }
  };
  const auto load_x = [&](int i) {
    const int s = i % S::kStages;
    copy_box_2d(shared + s * S::kStageBytes, x, i % p.steps * kDepth, own_tile<S>(p, i / p.steps).token,
                full + 8 * s);
  };
  const int ahead = total < S::kStages ? total : S::kStages;
  for (int i = 0; i < ahead; ++i) load_weights(i);
  wait_for_producer();
  for (int i = 0; i < ahead; ++i) load_x(i);
  for (int i = S::kStages; i < total; ++i) {
    barrier_wait(empty + 8 * (i % S::kStages), ((i / S::kStages) - 1) & 1);
    load_weights(i);
    load_x(i);
  }
}

// Lane t of four neighbours gets v[t] of all of them, in their order.
__device__ __forceinline__ void transpose_four(uint32_t (&v)[4], int t) {
  const bool odd = (t & 1) != 0, upper = (t & 2) != 0;
  uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1),
           b = __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
  if (odd) {
    v[0] = a, v[2] = b;
  } else {
    v[1] = a, v[3] = b;
  }
  a = __shfl_xor_sync(0xffffffffu, upper ? v[0] : v[2], 2),
  b = __shfl_xor_sync(0xffffffffu, upper ? v[1] : v[3], 2);
  if (upper) {
    v[0] = a, v[1] = b;
  } else {
    v[2] = a, v[3] = b;
  }
}

__device__ __forceinline__ float gate_silu(float g, float u) {
  return __fdividef(g, 1.0f + __expf(-g)) * u;
}

// A warp's 16 tokens, eight columns to a lane.
template <class S>
__device__ __forceinline__ void store_results(const WideArguments& p, const float (&sums)[S::kSums],
                                              WideTile tile) {
  const int lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3, warp = threadIdx.x / 32 - 4;
#pragma unroll
  for (int pair = 0; pair < S::kColumns / 16; ++pair) {
    uint32_t v[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      // q = 0, 1: rows g and g + 8 of the first eight columns; 2, 3: of the next eight
      const int at = (2 * pair + (q >> 1)) * 4 + (q & 1) * 2;
      v[q] =
          pack_pair(gate_silu(sums[at], sums[at + S::kUp]), gate_silu(sums[at + 1], sums[at + 1 + S::kUp]));
    }
    transpose_four(v, t);
    const int column = tile.column + (2 * pair + (t >> 1)) * 8;
    const int token = tile.token + warp * 16 + g + (t & 1) * 8;
    if (token < p.n && column < p.inner)
      *reinterpret_cast<uint4*>(p.out + token * p.out_stride + column) = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

template <class S>
__device__ __forceinline__ void multiply_tiles(const WideArguments& p, uint32_t shared) {
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, tiles = tiles_of_cluster<S>(p);
  int i = 0;
  float sums[S::kSums];
  const auto give_back = [&](int stage) {
    if (thread < S::Sharers) barrier_arrive_at(empty + 8 * stage, thread);
  };
  for (int number = 0; number < tiles; ++number) {
    for (int step = 0; step < p.steps; ++step, ++i) {
      const int s = i % S::kStages;
      barrier_wait(full + 8 * s, (i / S::kStages) & 1);
      const uint64_t a = describe_operand(shared + s * S::kStageBytes + group * 64 * 128);
      const uint64_t b = describe_operand(shared + s * S::kStageBytes + S::kXBytes);
      products_begin();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) multiply(sums, a + 2 * k, b + 2 * k, step != 0 || k != 0 ? 1 : 0);
      products_commit();
      products_wait<1>();
      if (step > 0) give_back((i - 1) % S::kStages);
    }
    products_wait<0>();
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    give_back((i - 1) % S::kStages);
    store_results<S>(p, sums, own_tile<S>(p, number));
  }
}

template <class S>
__global__ void __cluster_dims__(S::Sharers) __launch_bounds__(kBoundThreads, 1)
    wide_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
                const WideArguments p) {
  extern __shared__ uint8_t raw[];
  const uint32_t shared = shared_address(raw) + bytes_to_aligned(raw);
  const uint32_t full = shared + S::kBarriers, empty = full + 8 * S::kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, S::Groups * S::Sharers);
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
    if constexpr (S::Groups > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) load_tiles<S>(p, &x, &weights, shared);
  } else {
    if constexpr (S::Groups > 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
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
void launch_shape(const ProductParams& p, Stream stream) {
  static const int at_once = multiprocessors() / S::Sharers;
  static const cudaError_t attribute =
      cudaFuncSetAttribute(wide_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "wide product");
  WideArguments arguments{};
  arguments.out = static_cast<bf16*>(p.out.data);
  arguments.out_stride = p.out.stride_n;
  arguments.n = static_cast<int>(p.x.n);
  arguments.inner = static_cast<int>(p.out.dim);
  arguments.steps = static_cast<int>(ceil_div(p.weight.cols, kDepth));
  arguments.row_tiles = static_cast<int>(ceil_div(p.out.dim, S::kColumns));
  arguments.token_tiles = static_cast<int>(ceil_div(p.x.n, S::kTokens * S::Sharers));
  arguments.tiles = arguments.row_tiles * arguments.token_tiles;
  // The rest of a stage holds what it held; no result depends on it.
  arguments.x_rows = S::Sharers == 1 ? static_cast<int>(ceil_div(p.x.n, 8) * 8) : S::kTokens;
  const CUtensorMap x = map_of(p.x.data, p.weight.cols, p.x.n, p.x.stride_n * 2, arguments.x_rows);
  const CUtensorMap weights =
      map_of(p.weight.data, p.weight.cols, p.weight.rows, p.weight.row_bytes, S::kColumns);
  const int clusters = arguments.tiles < at_once ? arguments.tiles : at_once;
  const Grid grid{dim3(static_cast<unsigned>(clusters * S::Sharers)), dim3(S::kThreads), S::kShared};
  launch("wide product", wide_kernel<S>, grid, stream, x, weights, arguments);
}

// A shape as the host chooses it.
struct Kind {
  int columns, sharers;
  void (*launch)(const ProductParams&, Stream);
};
template <int Groups, int Rows, int Sharers>
constexpr Kind kind() {
  using S = WideShape<Groups, Rows, Sharers>;
  return {S::kColumns, Sharers, launch_shape<S>};
}
template <int Groups>
constexpr std::array<Kind, 4> kFewTokens{kind<Groups, 160, 1>(), kind<Groups, 192, 1>(),
                                         kind<Groups, 224, 1>(), kind<Groups, 256, 1>()};
constexpr std::array<Kind, 2> kManyTokens{kind<2, 224, 2>(), kind<2, 256, 2>()};

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

bool wide_fits(const ProductParams& p) {
  const auto even = [](int64_t elements) { return elements % 8 == 0; };
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16 && p.bias == nullptr &&
         p.weight.rows == 2 * p.out.dim && aligned16(p.weight.data) && aligned16(p.x.data) &&
         aligned16(p.out.data) && p.weight.row_bytes % 16 == 0 && even(p.x.stride_n) &&
         even(p.out.stride_n) && even(p.out.dim) && p.x.stride_n >= p.weight.cols &&
         p.out.stride_n >= p.out.dim && p.weight.rows < (1 << 30) && p.x.n < (1 << 24);
}

bool wide_busy(const ProductParams& p) {
  static const int processors = multiprocessors();
  return 4 * ceil_div(p.out.dim, choose(kFewTokens<1>, p.out.dim, 1).columns) >= 3 * processors;
}

void launch_wide_silu(const ProductParams& p, Stream stream) {
  const int64_t inner = p.out.dim;
  if (p.x.n <= 64) return choose(kFewTokens<1>, inner, 1).launch(p, stream);
  if (p.x.n <= 128) return choose(kFewTokens<2>, inner, 1).launch(p, stream);
  choose(kManyTokens, inner, ceil_div(p.x.n, 256)).launch(p, stream);
}

}  // namespace sluice::kernels::cuda
