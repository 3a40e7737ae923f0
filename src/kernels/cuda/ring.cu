// Products of 2 to 32 tokens with bf16 weights: out[n, rows] = x[n, cols] · Wᵀ + bias.
//
// One persistent block per multiprocessor walks over tiles of 16 · RowTiles weight rows. A producer warp
// keeps a ring of stages (each 64 · Depth columns of the tile's rows and of x) full with the tensor copy
// engine, one box per stage, 128-byte swizzled, weights marked to leave the L2 first. The other warps split a
// stage's columns, multiply with mma m16n8k16 (weight rows as the 16-row operand) and meet in shared memory
// at the end of a tile. The order of columns within a piece of 32 is permuted alike for both operands, so
// that every lane reads 16 bytes. The ring fills with weights while the kernel in front still runs. Moves the
// weights once. On an H200, 8 tokens, dependent launch: 12.6 us for 6144 x 4096 (4.0 TB/s), 57 us for 28672 x
// 4096 (4.1 TB/s), 28.1 us for 4096 x 14336 (4.2 TB/s).
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/copy_engine.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {
namespace {

// TokenTiles of 8 tokens, RowTiles of 16 weight rows, Stages of Depth blocks of 64 columns, Warps that
// multiply.
template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps>
struct Shape {
  static constexpr int kRows = 16 * RowTiles, kTokens = 8 * TokenTiles;
  static constexpr int kStageBytes = Depth * (kRows + kTokens) * 128;
  static constexpr int kSumPitch = kTokens + 1;
  static constexpr int kSumBytes = Warps * kRows * kSumPitch * 4;
  static constexpr int kShared = Stages * kStageBytes + kSumBytes + Stages * 16 + 1024;
  static constexpr int kThreads = Warps * 32 + 32;
  static_assert(kShared <= 232448 - 1024, "shared memory of a block");
  static_assert(Stages >= 3, "one stage is being read, one is held back");
};

struct RingArguments {
  bf16* out;
  const float* bias;
  int64_t out_stride;
  int n, rows, steps;  // rows: of out; steps: stages per tile
  int activation;
};

template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated>
__device__ __forceinline__ void multiply_stage(const uint8_t* stage, int warp, int lane,
                                               float (&acc)[RowTiles][TokenTiles][4]) {
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps>;
  const int g = lane >> 2, t = lane & 3;
  const uint8_t* x = stage + Depth * S::kRows * 128;
#pragma unroll
  for (int q = 0; q < (2 * Depth + Warps - 1) / Warps; ++q) {
    const int piece = warp + Warps * q;  // of 32 columns
    if ((2 * Depth) % Warps != 0 && piece >= 2 * Depth) continue;
    const int block = piece >> 1, half = piece & 1;
    const int place = ((half * 4 + t) ^ g) * 16;  // the swizzle; row % 8 == g for every row read
    uint4 b[TokenTiles];
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
      b[n] = *reinterpret_cast<const uint4*>(x + (block * S::kTokens + n * 8 + g) * 128 + place);
#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
      const int row = Gated ? (r * Depth + block) * 16 + g : block * S::kRows + r * 16 + g;
      const uint4 a0 = *reinterpret_cast<const uint4*>(stage + row * 128 + place);
      const uint4 a1 = *reinterpret_cast<const uint4*>(stage + (row + 8) * 128 + place);
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        mma_bf16(acc[r][n], a0.x, a1.x, a0.y, a1.y, b[n].x, b[n].y);
        mma_bf16(acc[r][n], a0.z, a1.z, a0.w, a1.w, b[n].z, b[n].w);
      }
    }
  }
}

template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated>
__global__ void __launch_bounds__(Warps * 32 + 32, 1)
    ring_kernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap x_map,
                const RingArguments p) {
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps>;
  extern __shared__ uint8_t raw[];
  uint8_t* base = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t{1023});
  float* sums = reinterpret_cast<float*>(base + Stages * S::kStageBytes);
  const auto ring = shared_address(base);
  const uint32_t full = ring + Stages * S::kStageBytes + S::kSumBytes, empty = full + Stages * 8;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  constexpr int kResults = Gated ? 16 : S::kRows;  // rows of out that a tile makes
  const int tiles = (p.rows + kResults - 1) / kResults;
  const int mine =
      (tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, Warps);
    }
    barriers_ready();
  }
  __syncthreads();

  if (warp == Warps) {
    if (lane != 0) return;
    const uint64_t policy = read_once_policy();
    const int total = mine * p.steps, ahead = total < Stages ? total : Stages;
    const auto load_weights = [&](int i) {
      const int s = i % Stages, tile = blockIdx.x + (i / p.steps) * gridDim.x;
      barrier_expect(full + 8 * s, S::kStageBytes);
      const uint32_t to = ring + s * S::kStageBytes;
      const int column = i % p.steps * Depth;
      copy_box_3d(to, &weight_map, 0, tile * kResults, column, full + 8 * s, policy);
      if constexpr (Gated)
        copy_box_3d(to + Depth * 16 * 128, &weight_map, 0, p.rows + tile * 16, column, full + 8 * s, policy);
    };
    const auto load_x = [&](int i) {
      const int s = i % Stages;
      copy_box_3d(ring + s * S::kStageBytes + Depth * S::kRows * 128, &x_map, 0, 0, i % p.steps * Depth,
                  full + 8 * s);
    };
    allow_dependents();
    for (int i = 0; i < ahead; ++i) load_weights(i);
    wait_for_producer();
    for (int i = 0; i < ahead; ++i) load_x(i);
    for (int i = Stages; i < total; ++i) {
      barrier_wait(empty + 8 * (i % Stages), ((i / Stages) - 1) & 1);
      load_weights(i);
      load_x(i);
    }
    return;
  }

  const int g = lane >> 2, t = lane & 3;
  int i = 0;
  for (int j = 0; j < mine; ++j) {
    float acc[RowTiles][TokenTiles][4] = {};
    for (int step = 0; step < p.steps; ++step, ++i) {
      const int s = i % Stages;
      barrier_wait(full + 8 * s, (i / Stages) & 1);
      // A stage is given back one stage late. Given back at once, the copy engine could overtake reads of it that are
      // still under way; the products that use them are all issued before this wait.
      __syncwarp();
      if (lane == 0 && i > 0) barrier_arrive(empty + 8 * ((i - 1) % Stages));
      multiply_stage<TokenTiles, RowTiles, Stages, Depth, Warps, Gated>(base + s * S::kStageBytes, warp, lane,
                                                                        acc);
    }
#pragma unroll
    for (int r = 0; r < RowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        float* sum = sums + (warp * S::kRows + r * 16 + g) * S::kSumPitch + n * 8 + t * 2;
        sum[0] = acc[r][n][0], sum[1] = acc[r][n][1];
        sum[8 * S::kSumPitch] = acc[r][n][2], sum[8 * S::kSumPitch + 1] = acc[r][n][3];
      }
    }
    asm volatile("bar.sync 1, %0;" ::"n"(Warps * 32) : "memory");
    const int row0 = (static_cast<int>(blockIdx.x) + j * static_cast<int>(gridDim.x)) * kResults;
    const auto total = [&](int r, int token) {
      float value = 0.0f;
#pragma unroll
      for (int w = 0; w < Warps; ++w) value += sums[(w * S::kRows + r) * S::kSumPitch + token];
      return value;
    };
    for (int e = threadIdx.x; e < kResults * p.n; e += Warps * 32) {
      const int r = e % kResults, token = e / kResults, row = row0 + r;
      if (row >= p.rows) continue;
      float value = total(r, token) + (p.bias != nullptr ? p.bias[row] : 0.0f);
      if constexpr (Gated) {
        const float up = total(16 + r, token) + (p.bias != nullptr ? p.bias[p.rows + row] : 0.0f);
        value = gate(value, up, p.activation);
      }
      p.out[token * p.out_stride + row] = __float2bfloat16(value);
    }
    asm volatile("bar.sync 1, %0;" ::"n"(Warps * 32) : "memory");
  }
}

// A matrix [rows, cols] seen as [cols / 64, rows, 64], read in boxes of [depth, box_rows, 64]; zero outside.
CUtensorMap make_map(const void* data, int64_t rows, int64_t cols, int64_t row_bytes, int box_rows,
                     int depth) {
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  return make_tensor_map(data, {3,
                                {64, size(rows), size(cols / 64)},
                                {size(row_bytes), 128},
                                {64, static_cast<uint32_t>(box_rows), static_cast<uint32_t>(depth)}});
}

template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated = false>
void launch_shape(const ProductParams& p, int processors, Stream stream, int32_t activation = 0) {
  static_assert(!Gated || RowTiles == 2, "a gate tile and an up tile");
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps>;
  const auto kernel = ring_kernel<TokenTiles, RowTiles, Stages, Depth, Warps, Gated>;
  static const cudaError_t attribute =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "ring");
  const int results = Gated ? 16 : S::kRows;
  const CUtensorMap weights =
      make_map(p.weight.data, p.weight.rows, p.weight.cols, p.weight.row_bytes, results, Depth);
  const CUtensorMap x = make_map(p.x.data, p.x.n, p.weight.cols, p.x.stride_n * 2, S::kTokens, Depth);
  RingArguments arguments{};
  arguments.out = static_cast<bf16*>(p.out.data);
  arguments.bias = p.bias;
  arguments.out_stride = p.out.stride_n;
  arguments.n = static_cast<int>(p.x.n);
  arguments.rows = static_cast<int>(Gated ? p.weight.rows / 2 : p.weight.rows);
  arguments.steps = static_cast<int>(ceil_div(p.weight.cols, 64 * Depth));
  arguments.activation = activation;
  const int64_t tiles = ceil_div(arguments.rows, results);
  const Grid grid{dim3(static_cast<unsigned>(tiles < processors ? tiles : processors)), dim3(S::kThreads),
                  S::kShared};
  launch("ring", kernel, grid, stream, weights, x, arguments);
}

}  // namespace

bool ring_fits(const ProductParams& p) {
  return p.weight.type == DType::BF16 && p.x.n <= 32 && p.weight.cols % 64 == 0 && aligned16(p.weight.data) &&
         aligned16(p.x.data) && p.weight.row_bytes % 16 == 0 && p.x.stride_n % 8 == 0 &&
         p.weight.rows < (1 << 30) && (p.x.n == 1 || p.x.stride_n >= p.weight.cols);
}

void launch_ring_gated(const GatedProductParams& p, Stream stream) {
  static const int processors = multiprocessors();
  const ProductParams& product = p.product;
  if (product.x.n <= 8) return launch_shape<1, 2, 9, 4, 8, true>(product, processors, stream, p.activation);
  if (product.x.n <= 16) return launch_shape<2, 2, 8, 4, 8, true>(product, processors, stream, p.activation);
  launch_shape<4, 2, 5, 4, 8, true>(product, processors, stream, p.activation);
}

void launch_ring(const ProductParams& p, Stream stream) {
  static const int processors = multiprocessors();
  // The share of a block: waves of tiles, each of 2 or 3 times 16 rows.
  const int64_t narrow = ceil_div(ceil_div(p.weight.rows, 32), processors) * 2;
  const int64_t wide = ceil_div(ceil_div(p.weight.rows, 48), processors) * 3;
  if (p.x.n <= 8) {
    if (wide < narrow) return launch_shape<1, 3, 6, 4, 8>(p, processors, stream);
    return launch_shape<1, 2, 9, 4, 8>(p, processors, stream);
  }
  if (p.x.n <= 16) {
    if (wide < narrow) return launch_shape<2, 3, 6, 4, 8>(p, processors, stream);
    return launch_shape<2, 2, 8, 4, 8>(p, processors, stream);
  }
  if (wide < narrow) return launch_shape<4, 3, 4, 4, 4>(p, processors, stream);
  launch_shape<4, 2, 5, 4, 8>(p, processors, stream);
}

}  // namespace sluice::kernels::cuda
