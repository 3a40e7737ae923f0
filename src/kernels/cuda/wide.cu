// The gated product of many tokens with bf16 weights on Hopper's warpgroup matrix instructions: out[n, inner] =
// silu(x · gateᵀ) * (x · upᵀ), where the weight stacks [inner, cols] of gate over up. The wide result never goes to
// memory.
//
// A block makes 128 tokens x 128 results (128 gate rows and their 128 up rows). One thread of it fills a ring of stages
// (64 columns: 128 rows of x, 256 of the weights) with the tensor copy engine; weights are on their way before the
// kernel in front has ended. The two blocks of a cluster read half of what they have in common and send it to both: for
// more than 128 tokens, they take the same rows and other tokens; for fewer, the same tokens and other rows. Two
// warpgroups multiply 64 tokens each, m64n256k16, sums in registers; a gate and its up element are in one thread.
// Results go through shared memory and back out with the copy engine. Clusters walk over the tiles in groups of 16
// token tiles, so that their part of x stays in the L2 while the weights pass. Operations: 4 · n · inner · cols; bytes:
// the weights once for every 2048 tokens. On an H200, 28672 x 4096: 69 us for 128 tokens (3.4 TB/s), 112 us for 256,
// 720 us for 2,048 (668 TFLOP/s), 2,868 us for 8,192 (671), at the card's power limit; cuBLASLt and a pass over its
// result take 80, 122, 824 and 3,140 us.
#include "kernels/cuda/copy_engine.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTokens = 128, kRows = 256, kDepth = 64, kStages = 4, kCluster = 2;
constexpr int kXBytes = kTokens * 128, kHalfBytes = kRows / 2 * 128, kStageBytes = kXBytes + 2 * kHalfBytes;
constexpr int kColumns = kRows / 2;                               // of the result that a tile makes
constexpr int kBoxBytes = 64 * 128, kGroupBytes = 2 * kBoxBytes;  // results of one warpgroup: two boxes
constexpr int kResults = kStages * kStageBytes, kBarriers = kResults + 2 * kGroupBytes;
constexpr int kShared = kBarriers + 2 * kStages * 8 + 1024;
constexpr int kThreads = 384;  // a warpgroup that loads, two that multiply
constexpr int kPairsTogether = 8;
static_assert(kShared <= 232448, "shared memory of a block");

// What the blocks of a cluster have in common.
enum class Common { Weights, X };

struct WideArguments {
  int pairs, row_tiles,
      steps;  // of kTokens per block of a cluster that has its own; of kColumns; of kDepth columns
  int inner;  // results of a token: from a gate row to its up row
};

__device__ __forceinline__ void multiply_64x256x16(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),
        "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]),
        "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]),
        "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]),
        "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]),
        "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]),
        "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),
        "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]),
        "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Rows of 128 bytes, swizzled, eight of them 1024 bytes apart from the next eight.
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffffu) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

// Of one block.
struct Tile {
  int token, column;
};
template <Common Kind>
__device__ __forceinline__ Tile tile_of(const WideArguments& p, int index) {
  const int rank = static_cast<int>(cluster_rank());
  if constexpr (Kind == Common::X) return {0, (index * kCluster + rank) * kColumns};
  const int group = index / (kPairsTogether * p.row_tiles), within = index % (kPairsTogether * p.row_tiles);
  const int first = group * kPairsTogether;
  const int together = p.pairs - first < kPairsTogether ? p.pairs - first : kPairsTogether;
  return {((first + within % together) * kCluster + rank) * kTokens, within / together * kColumns};
}

template <Common Kind>
__device__ __forceinline__ int tiles_of_cluster(const WideArguments& p) {
  const int cluster = blockIdx.x / kCluster, clusters = gridDim.x / kCluster;
  const int tiles = Kind == Common::X ? (p.row_tiles + kCluster - 1) / kCluster : p.pairs * p.row_tiles;
  return (tiles - cluster + clusters - 1) / clusters;
}

// Of this block's tile number `tile`.
template <Common Kind>
__device__ __forceinline__ Tile own_tile(const WideArguments& p, int tile) {
  return tile_of<Kind>(p, (blockIdx.x + tile * gridDim.x) / kCluster);
}

template <Common Kind>
__device__ __forceinline__ void load_tiles(const WideArguments& p, const CUtensorMap* x,
                                           const CUtensorMap* weights, uint32_t shared) {
  constexpr uint16_t kBoth = 3;
  const uint32_t full = shared + kBarriers, empty = full + 8 * kStages;
  const int rank = static_cast<int>(cluster_rank()), total = tiles_of_cluster<Kind>(p) * p.steps;
  const auto load_weights = [&](int i) {
    const int s = i % kStages, column = i % p.steps * kDepth, row = own_tile<Kind>(p, i / p.steps).column;
    const uint32_t to = shared + s * kStageBytes + kXBytes, barrier = full + 8 * s;
    barrier_expect(barrier, kStageBytes);
    if constexpr (Kind == Common::Weights) {
      copy_box_2d_to(to + rank * kHalfBytes, weights, column, row + rank * p.inner, barrier, kBoth);
    } else {
      copy_box_2d(to, weights, column, row, barrier);
      copy_box_2d(to + kHalfBytes, weights, column, row + p.inner, barrier);
    }
  };
  const auto load_x = [&](int i) {
    const int s = i % kStages, column = i % p.steps * kDepth;
    const uint32_t to = shared + s * kStageBytes, barrier = full + 8 * s;
    if constexpr (Kind == Common::Weights) {
      copy_box_2d(to, x, column, own_tile<Kind>(p, i / p.steps).token, barrier);
    } else {
      copy_box_2d_to(to + rank * kXBytes / 2, x, column, rank * kTokens / 2, barrier, kBoth);
    }
  };
  const int ahead = total < kStages ? total : kStages;
  for (int i = 0; i < ahead; ++i) load_weights(i);
  wait_for_producer();
  for (int i = 0; i < ahead; ++i) load_x(i);
  for (int i = kStages; i < total; ++i) {
    barrier_wait(empty + 8 * (i % kStages), ((i / kStages) - 1) & 1);
    load_weights(i);
    load_x(i);
  }
}

__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

__device__ __forceinline__ float gate_silu(float g, float u) {
  return __fdividef(g, 1.0f + __expf(-g)) * u;
}

// A warpgroup's 64 x 128 results to shared memory and out.
__device__ __forceinline__ void store_results(float (&sums)[128], uint32_t results, const CUtensorMap* out,
                                              int column, int token) {
  const int thread = threadIdx.x % 128, lane = thread % 32, group = threadIdx.x / 128;
  const int row = thread / 32 * 16 + (lane & 15), piece = lane >> 4;
  if (thread == 0) store_wait_read();
  asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
#pragma unroll
  for (int j = 0; j < kColumns / 16; ++j) {
    uint32_t packed[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      // q = 0, 1: rows g and g + 8 of the first eight columns; 2, 3: of the next eight
      const int at = (2 * j + q / 2) * 4 + (q & 1) * 2;
      packed[q] = pack_pair(gate_silu(sums[at], sums[at + 64]), gate_silu(sums[at + 1], sums[at + 65]));
    }
    const int chunk = 2 * j + piece;
    store_matrices(results + (chunk >> 3) * kBoxBytes + row * 128 + (((chunk & 7) ^ (row & 7)) << 4),
                   packed[0], packed[1], packed[2], packed[3]);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
  if (thread != 0) return;
  store_box_2d(out, column, token, results);
  store_box_2d(out, column + 64, token, results + kBoxBytes);
  store_commit();
}

template <Common Kind>
__device__ __forceinline__ void multiply_tiles(const WideArguments& p, const CUtensorMap* out,
                                               uint32_t shared) {
  const uint32_t full = shared + kBarriers, empty = full + 8 * kStages;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, tiles = tiles_of_cluster<Kind>(p);
  const uint32_t results = shared + kResults + group * kGroupBytes;
  int i = 0;
  float sums[128];
  const auto give_back = [&](int stage) {
    if (thread < kCluster) barrier_arrive_at(empty + 8 * stage, thread);
  };
  for (int number = 0; number < tiles; ++number) {
    for (int step = 0; step < p.steps; ++step, ++i) {
      const int s = i % kStages;
      barrier_wait(full + 8 * s, (i / kStages) & 1);
      const uint64_t a = describe(shared + s * kStageBytes + group * 64 * 128);
      const uint64_t b = describe(shared + s * kStageBytes + kXBytes);
      products_begin();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k)
        multiply_64x256x16(sums, a + 2 * k, b + 2 * k, step != 0 || k != 0 ? 1 : 0);
      products_commit();
      products_wait<1>();
      if (step > 0) give_back((i - 1) % kStages);
    }
    products_wait<0>();
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    give_back((i - 1) % kStages);
    const Tile tile = own_tile<Kind>(p, number);
    store_results(sums, results, out, tile.column, tile.token + group * 64);
  }
  if (thread == 0) store_wait_done();
}

template <Common Kind>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    wide_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap weights,
                const __grid_constant__ CUtensorMap out, const WideArguments p) {
  extern __shared__ uint8_t raw[];
  const uint32_t shared = (shared_address(raw) + 1023) & ~1023u;
  const uint32_t full = shared + kBarriers, empty = full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, 2 * kCluster);
    }
    barriers_ready();
  }
  allow_dependents();
  cluster_sync();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) load_tiles<Kind>(p, &x, &weights, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_producer();
    multiply_tiles<Kind>(p, &out, shared);
  }
  cluster_sync();
}

CUtensorMap map_of(const void* data, int64_t columns, int64_t rows, int64_t row_bytes, uint32_t box_rows) {
  return make_tensor_map(data, {2,
                                {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)},
                                {static_cast<uint64_t>(row_bytes)},
                                {64, box_rows}});
}

template <Common Kind>
void launch_kind(const ProductParams& p, Stream stream) {
  static const int processors = multiprocessors();
  static const cudaError_t attribute =
      cudaFuncSetAttribute(wide_kernel<Kind>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  check_launch(attribute, "wide product");
  WideArguments arguments{};
  arguments.inner = static_cast<int>(p.out.dim);
  arguments.pairs = static_cast<int>(ceil_div(p.x.n, kCluster * kTokens));
  arguments.row_tiles = static_cast<int>(ceil_div(p.out.dim, kColumns));
  arguments.steps = static_cast<int>(ceil_div(p.weight.cols, kDepth));
  const uint32_t x_rows = Kind == Common::X ? kTokens / kCluster : kTokens;
  const CUtensorMap x = map_of(p.x.data, p.weight.cols, p.x.n, p.x.stride_n * 2, x_rows);
  const CUtensorMap weights =
      map_of(p.weight.data, p.weight.cols, p.weight.rows, p.weight.row_bytes, kRows / 2);
  const CUtensorMap out = map_of(p.out.data, p.out.dim, p.x.n, p.out.stride_n * 2, 64);
  const int64_t tiles = Kind == Common::X ? ceil_div(arguments.row_tiles, kCluster)
                                          : int64_t{arguments.pairs} * arguments.row_tiles;
  const int64_t most = processors / kCluster;
  const Grid grid{dim3(static_cast<unsigned>((tiles < most ? tiles : most) * kCluster)), dim3(kThreads),
                  kShared};
  launch("wide product", wide_kernel<Kind>, grid, stream, x, weights, out, arguments);
}

}  // namespace

bool wide_fits(const ProductParams& p) {
  const auto even = [](int64_t elements) { return elements % 8 == 0; };
  return p.weight.type == DType::BF16 && p.bias == nullptr && p.weight.rows == 2 * p.out.dim &&
         aligned16(p.weight.data) && aligned16(p.x.data) && aligned16(p.out.data) &&
         p.weight.row_bytes % 16 == 0 && even(p.x.stride_n) && even(p.out.stride_n) &&
         p.x.stride_n >= p.weight.cols && p.out.stride_n >= p.out.dim && p.weight.rows < (1 << 30) &&
         p.x.n < (1 << 24);
}

void launch_wide_silu(const ProductParams& p, Stream stream) {
  if (p.x.n <= kTokens) return launch_kind<Common::X>(p, stream);
  launch_kind<Common::Weights>(p, stream);
}

}  // namespace sluice::kernels::cuda
