// GEMMs of up to 32 tokens with bf16 or scaled fp8 weights: out[n, rows] = x[n, cols] · Wᵀ + bias.
//
// One persistent block per multiprocessor walks over tiles of 16 · RowTiles weight rows. A producer warp
// keeps a ring of stages (each 64 · Depth columns of the tile's rows and of x) full with the tensor copy
// engine, one box per stage, 128-byte swizzled, weights marked to leave the L2 first. The other warps split a
// stage's columns, multiply with mma m16n8k16 (weight rows as the 16-row operand) and meet in shared memory
// at the end of a tile. The order of columns within a piece of 32 is permuted alike for both operands, so
// that every lane reads 16 bytes. Fp8 is widened to f16 on the way to the mma, by more warps: one for each tile of rows
// and piece of columns. The ring fills with weights while the kernel in front still runs. Moves the
// weights once. On an H200, 8 tokens, dependent launch: 12.6 us for 6144 x 4096 (4.0 TB/s), 57 us for 28672 x
// 4096 (4.1 TB/s), 28.1 us for 4096 x 14336 (4.2 TB/s).
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/gemm/norm_factors.cuh"

namespace sluice::kernels::cuda {
namespace {

// TokenTiles of 8 tokens, RowTiles of 16 weight rows, Stages of Depth blocks of 64 columns, Warps that share out
// the columns.
template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Fp8>
struct Shape {
  static constexpr int kRows = 16 * RowTiles, kTokens = 8 * TokenTiles;
  static constexpr int kBoxes = Fp8 ? Depth / 2 : Depth;  // 128 bytes of every weight row of the tile
  static constexpr int kWeightBytes = kBoxes * kRows * 128;
  static constexpr int kStageBytes = kWeightBytes + Depth * kTokens * 128;
  static constexpr int kSumPitch = kTokens + 1;
  static constexpr int kSumBytes = Warps * kRows * kSumPitch * 4;
  static constexpr int kTeams = Fp8 ? RowTiles : 1;  // of Warps warps, each with its share of the row tiles
  static constexpr int kMultipliers = kTeams * Warps, kThreads = kMultipliers * 32 + 32;
  static constexpr int kScaleBytes = Fp8 ? kRows * 4 : kTokens * 4;  // of rows; factors of tokens
  static constexpr int kShared = Stages * kStageBytes + kSumBytes + Stages * 16 + kScaleBytes + 1024;
  static_assert(kShared <= 232448 - 1024, "shared memory of a block");
  static_assert(Stages >= 3, "one stage is being read, one is held back");
  static_assert(!Fp8 || Depth % 2 == 0, "whole boxes");
};

struct SmallMArguments {
  bf16* out;
  const float* bias;
  const float* scales;  // fp8 only
  int64_t out_stride;
  int n, rows, steps;  // rows: of out; steps: stages per tile
  int activation;
  NormFactors factors;
  NormedSum sum;
};

// Fp8 GEMMs run in f16, which holds every e4m3 value; x is made smaller, so that it reaches as far as it has to.
constexpr float kFp8Excess = 64.0f;

// Two fp8 elements as f16.
__device__ __forceinline__ uint32_t widen_pair(uint16_t pair) {
  uint32_t result;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(result) : "h"(pair));
  return result;
}
__device__ __forceinline__ uint4 widen8(uint32_t first, uint32_t second) {
  return make_uint4(widen_pair(static_cast<uint16_t>(first)), widen_pair(static_cast<uint16_t>(first >> 16)),
                    widen_pair(static_cast<uint16_t>(second)),
                    widen_pair(static_cast<uint16_t>(second >> 16)));
}
// Two bf16 elements, divided by kFp8Excess, as f16.
__device__ __forceinline__ uint32_t narrow_pair(uint32_t pair) {
  __half2 half = __floats2half2_rn(low_half(pair) / kFp8Excess, high_half(pair) / kFp8Excess);
  return *reinterpret_cast<uint32_t*>(&half);
}
__device__ __forceinline__ uint4 narrow8(uint4 v) {
  return make_uint4(narrow_pair(v.x), narrow_pair(v.y), narrow_pair(v.z), narrow_pair(v.w));
}

// Pieces of 64 columns: a lane holds 16 elements of a weight row and the same columns of x. A warp has one tile of rows.
template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated>
__device__ __forceinline__ void multiply_fp8(const uint8_t* stage, int warp, int lane,
                                             float (&acc)[1][TokenTiles][4]) {
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps, true>;
  const int g = lane >> 2, t = lane & 3, r = warp / Warps;
  const uint8_t* x = stage + S::kWeightBytes;
  static_assert(Depth % Warps == 0, "every warp has as many pieces");
#pragma unroll
  for (int q = 0; q < Depth / Warps; ++q) {
    const int piece = warp % Warps + Warps * q, block = piece >> 1;
    const int place = (((piece & 1) * 4 + t) ^ g) * 16;
    const int row = Gated ? (r * S::kBoxes + block) * 16 + g : block * S::kRows + r * 16 + g;
    const uint4 a0 = *reinterpret_cast<const uint4*>(stage + row * 128 + place);
    const uint4 a1 = *reinterpret_cast<const uint4*>(stage + (row + 8) * 128 + place);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 w0 = half == 0 ? widen8(a0.x, a0.y) : widen8(a0.z, a0.w);
      const uint4 w1 = half == 0 ? widen8(a1.x, a1.y) : widen8(a1.z, a1.w);
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        const uint8_t* token = x + (piece * S::kTokens + n * 8 + g) * 128;
        const uint4 v = narrow8(*reinterpret_cast<const uint4*>(token + ((2 * t + half) ^ g) * 16));
        mma_f16(acc[0][n], w0.x, w1.x, w0.y, w1.y, v.x, v.y);
        mma_f16(acc[0][n], w0.z, w1.z, w0.w, w1.w, v.z, v.w);
      }
    }
  }
}

template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated>
__device__ __forceinline__ void multiply_bf16(const uint8_t* stage, int warp, int lane,
                                              float (&acc)[RowTiles][TokenTiles][4]) {
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps, false>;
  const int g = lane >> 2, t = lane & 3;
  const uint8_t* x = stage + S::kWeightBytes;
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

// The stream that a result is added to, and the gain of its column.
struct StreamPlace {
  float old = 0.0f, gain = 1.0f;
};
__device__ __forceinline__ StreamPlace load_stream(const SmallMArguments& p, int token, int row) {
  StreamPlace place;
  if (p.sum.out == nullptr || token >= p.n || row >= p.rows) return place;
  place.old = widen(*const_cast<const volatile bf16*>(p.out + token * p.out_stride + row));
  if (p.sum.gain != nullptr) place.gain = __ldg(p.sum.gain + row);
  return place;
}
// The new sum; the first half of its norm is stored. Sixteen neighbouring lanes have columns of one token.
__device__ __forceinline__ float add_normed(const SmallMArguments& p, int token, int row,
                                            const StreamPlace& place, float value) {
  value = widen(narrow<bf16>(value + place.old));
  float square = value * value;
  const unsigned together = 0xffffu << (threadIdx.x % 32 & 16);
#pragma unroll
  for (int o = 8; o > 0; o >>= 1) square += __shfl_xor_sync(together, square, o);
  if (threadIdx.x % 16 == 0) p.sum.squares[token * (p.rows / kSmallMSquares) + row / kSmallMSquares] = square;
  static_cast<bf16*>(p.sum.out)[token * p.sum.out_stride + row] = narrow<bf16>(value * place.gain);
  return value;
}

template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated, bool Fp8>
__global__ void __launch_bounds__(Shape<TokenTiles, RowTiles, Stages, Depth, Warps, Fp8>::kThreads, 1)
    gemm_small_m_kernel(const __grid_constant__ CUtensorMap weight_map,
                        const __grid_constant__ CUtensorMap x_map, const SmallMArguments p) {
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps, Fp8>;
  require_hopper();
  extern __shared__ uint8_t raw[];
  uint8_t* base = raw + bytes_to_aligned(raw);
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
      barrier_init(empty + 8 * s, S::kMultipliers);
    }
    barriers_ready();
  }
  __syncthreads();

  if (warp == S::kMultipliers) {
    if (!one_lane()) return;
    const uint64_t policy = read_once_policy();
    const int total = mine * p.steps, ahead = total < Stages ? total : Stages;
    const auto load_weights = [&](int i) {
      const int s = i % Stages, tile = blockIdx.x + (i / p.steps) * gridDim.x;
      barrier_expect(full + 8 * s, S::kStageBytes);
      const uint32_t to = ring + s * S::kStageBytes;
      const int column = i % p.steps * S::kBoxes;
      tma_load_3d(to, &weight_map, 0, tile * kResults, column, full + 8 * s, policy);
      if constexpr (Gated)
        tma_load_3d(to + S::kWeightBytes / 2, &weight_map, 0, p.rows + tile * 16, column, full + 8 * s,
                    policy);
    };
    const auto load_x = [&](int i) {
      const int s = i % Stages;
      tma_load_3d(ring + s * S::kStageBytes + S::kWeightBytes, &x_map, 0, 0, i % p.steps * Depth,
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

  constexpr int kOwn = RowTiles / S::kTeams;
  const int g = lane >> 2, t = lane & 3;
  float* scales = reinterpret_cast<float*>(base + Stages * (S::kStageBytes + 16) + S::kSumBytes);
  float* const factors = scales;
  if constexpr (!Fp8) {
    if (p.factors.squares != nullptr || p.sum.out != nullptr) wait_for_producer();
    if (p.factors.squares != nullptr) {
      constexpr int kAtOnce = S::kMultipliers * 4;
      float own[(S::kTokens + kAtOnce - 1) / kAtOnce];
      const int first = static_cast<int>(threadIdx.x) / 8;
      load_factors(p.factors, first, kAtOnce, p.n, own);
#pragma unroll
      for (int pass = 0; pass < (S::kTokens + kAtOnce - 1) / kAtOnce; ++pass)
        if (threadIdx.x % 8 == 0 && first + pass * kAtOnce < p.n) factors[first + pass * kAtOnce] = own[pass];
    }
  }
  int i = 0;
  for (int j = 0; j < mine; ++j) {
    float acc[kOwn][TokenTiles][4] = {};
    const int row0 = (static_cast<int>(blockIdx.x) + j * static_cast<int>(gridDim.x)) * kResults;
    // Asked for here, needed at the end of the tile.
    float scale = 0.0f;
    if constexpr (Fp8) {
      const int place = static_cast<int>(threadIdx.x), row = row0 + place % kResults;
      if (place < S::kRows && row < p.rows) scale = __ldg(p.scales + row + (place < kResults ? 0 : p.rows));
    }
    StreamPlace place;
    if constexpr (!Fp8 && !Gated)
      place = load_stream(p, static_cast<int>(threadIdx.x) / kResults,
                          row0 + static_cast<int>(threadIdx.x) % kResults);
    for (int step = 0; step < p.steps; ++step, ++i) {
      const int s = i % Stages;
      barrier_wait(full + 8 * s, (i / Stages) & 1);
      // A stage is given back one stage late. Given back at once, the TMA unit could overtake reads of it that are
      // still under way; the MMAs that use them are all issued before this wait.
      __syncwarp();
      if (lane == 0 && i > 0) barrier_arrive(empty + 8 * ((i - 1) % Stages));
      const uint8_t* stage = base + s * S::kStageBytes;
      if constexpr (Fp8) {
        multiply_fp8<TokenTiles, RowTiles, Stages, Depth, Warps, Gated>(stage, warp, lane, acc);
      } else {
        multiply_bf16<TokenTiles, RowTiles, Stages, Depth, Warps, Gated>(stage, warp, lane, acc);
      }
    }
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        const int row = (r + warp / Warps * kOwn) * 16 + g;
        float* sum = sums + (warp % Warps * S::kRows + row) * S::kSumPitch + n * 8 + t * 2;
        sum[0] = acc[r][n][0], sum[1] = acc[r][n][1];
        sum[8 * S::kSumPitch] = acc[r][n][2], sum[8 * S::kSumPitch + 1] = acc[r][n][3];
      }
    }
    if (Fp8 && threadIdx.x < S::kRows) scales[threadIdx.x] = scale * kFp8Excess;
    asm volatile("bar.sync 1, %0;" ::"n"(S::kMultipliers * 32) : "memory");
    const auto total = [&](int r, int token) {
      float value = 0.0f;
#pragma unroll
      for (int w = 0; w < Warps; ++w) value += sums[(w * S::kRows + r) * S::kSumPitch + token];
      return value;
    };
    for (int e = threadIdx.x; e < kResults * p.n; e += S::kMultipliers * 32) {
      const int r = e % kResults, token = e / kResults, row = row0 + r;
      if (row >= p.rows) continue;
      const auto result = [&](int place, int weight_row) {
        float value = total(place, token);
        if constexpr (Fp8) value *= scales[place];
        if (!Fp8 && p.factors.squares != nullptr) value *= factors[token];
        return value + (p.bias != nullptr ? p.bias[weight_row] : 0.0f);
      };
      float value = result(r, row);
      if constexpr (Gated) {
        value = gate(value, result(16 + r, p.rows + row), p.activation);
      } else if constexpr (!Fp8) {
        if (p.sum.out != nullptr) {
          if (e != static_cast<int>(threadIdx.x)) place = load_stream(p, token, row);
          value = add_normed(p, token, row, place, value);
        }
      }
      p.out[token * p.out_stride + row] = __float2bfloat16(value);
    }
    asm volatile("bar.sync 1, %0;" ::"n"(S::kMultipliers * 32) : "memory");
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

template <int TokenTiles, int RowTiles, int Stages, int Depth, int Warps, bool Gated, bool Fp8>
void launch_shape(const GemmParams& p, int32_t activation, Stream stream) {
  static_assert(!Gated || RowTiles == 2, "a gate tile and an up tile");
  using S = Shape<TokenTiles, RowTiles, Stages, Depth, Warps, Fp8>;
  static const int processors = multiprocessors();
  const auto kernel = gemm_small_m_kernel<TokenTiles, RowTiles, Stages, Depth, Warps, Gated, Fp8>;
  static const cudaError_t attribute =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "ring");
  const int results = Gated ? 16 : S::kRows;
  // The TMA unit moves 128 bytes whatever they are: two fp8 elements travel as one of bf16.
  const auto* data = static_cast<const uint8_t*>(p.weight.data) + (Fp8 ? kFp8Header : 0);
  const int64_t cols = Fp8 ? p.weight.cols / 2 : p.weight.cols;
  const CUtensorMap weights = make_map(data, p.weight.rows, cols, p.weight.row_bytes, results, S::kBoxes);
  const CUtensorMap x = make_map(p.x.data, p.x.n, p.weight.cols, p.x.stride_n * 2, S::kTokens, Depth);
  SmallMArguments arguments{};
  arguments.out = static_cast<bf16*>(p.out.data);
  arguments.bias = p.bias;
  arguments.scales = p.weight.scales;
  arguments.out_stride = p.out.stride_n;
  arguments.n = static_cast<int>(p.x.n);
  arguments.rows = static_cast<int>(Gated ? p.weight.rows / 2 : p.weight.rows);
  arguments.steps = static_cast<int>(ceil_div(p.weight.cols, 64 * Depth));
  arguments.activation = activation;
  arguments.factors = p.factors;
  arguments.sum = p.sum;
  const int64_t tiles = ceil_div(arguments.rows, results);
  const Grid grid{dim3(static_cast<unsigned>(tiles < processors ? tiles : processors)), dim3(S::kThreads),
                  S::kShared};
  launch("ring", kernel, grid, stream, weights, x, arguments);
}

// Tiles of 48 rows where they share the rows out more evenly than tiles of 32.
bool swiglu_tiles(const GemmParams& p) {
  static const int processors = multiprocessors();
  const int64_t narrow = ceil_div(ceil_div(p.weight.rows, 32), processors) * 2;
  const int64_t wide = ceil_div(ceil_div(p.weight.rows, 48), processors) * 3;
  return wide < narrow;
}

// Tiles of 16 rows where those of 32 would leave half of the multiprocessors idle.
bool short_tiles(const GemmParams& p) {
  static const int processors = multiprocessors();
  return ceil_div(p.weight.rows, 32) * 2 <= processors;
}

template <bool Gated>
void launch_bf16(const GemmParams& p, int32_t activation, Stream stream) {
  if constexpr (!Gated) {
    const bool few = short_tiles(p);
    if (few && p.x.n <= 8) return launch_shape<1, 1, 14, 4, 8, false, false>(p, activation, stream);
    if (few && p.x.n <= 16) return launch_shape<2, 1, 12, 4, 8, false, false>(p, activation, stream);
    if (few) return launch_shape<4, 1, 7, 4, 8, false, false>(p, activation, stream);
    const bool wide = swiglu_tiles(p);
    if (wide && p.x.n <= 8) return launch_shape<1, 3, 6, 4, 8, false, false>(p, activation, stream);
    if (wide && p.x.n <= 16) return launch_shape<2, 3, 6, 4, 8, false, false>(p, activation, stream);
    if (wide) return launch_shape<4, 3, 4, 4, 4, false, false>(p, activation, stream);
  }
  if (p.x.n <= 8) return launch_shape<1, 2, 9, 4, 8, Gated, false>(p, activation, stream);
  if (p.x.n <= 16) return launch_shape<2, 2, 8, 4, 8, Gated, false>(p, activation, stream);
  launch_shape<4, 2, 5, 4, 8, Gated, false>(p, activation, stream);
}

template <bool Gated>
void launch_fp8(const GemmParams& p, int32_t activation, Stream stream) {
  if constexpr (!Gated) {
    if (swiglu_tiles(p) && p.x.n <= 8) return launch_shape<1, 3, 5, 8, 8, false, true>(p, activation, stream);
  }
  if (p.x.n <= 8) return launch_shape<1, 2, 8, 8, 8, Gated, true>(p, activation, stream);
  if (p.x.n <= 16) return launch_shape<2, 2, 6, 8, 8, Gated, true>(p, activation, stream);
  launch_shape<4, 2, 4, 8, 4, Gated, true>(p, activation, stream);
}

}  // namespace

bool gemm_small_m_fits(const GemmParams& p) {
  const bool bf16_weights = p.weight.type == DType::BF16 && p.weight.cols % 64 == 0;
  const bool fp8_weights = p.weight.scales != nullptr && p.weight.cols % 128 == 0;
  return (bf16_weights || fp8_weights) && p.x.n <= 32 && aligned16(p.weight.data) && aligned16(p.x.data) &&
         p.weight.row_bytes % 16 == 0 && p.x.stride_n % 8 == 0 && p.weight.rows < (1 << 30) &&
         (bf16_weights || (p.factors.squares == nullptr && p.sum.out == nullptr)) && norm_factors_fit(p) &&
         normed_sum_fits(p, kSmallMSquares) && (p.x.n == 1 || p.x.stride_n >= p.weight.cols);
}

void launch_gemm_small_m_gated(const GatedGemmParams& p, Stream stream) {
  if (p.gemm.weight.scales != nullptr) return launch_fp8<true>(p.gemm, p.activation, stream);
  launch_bf16<true>(p.gemm, p.activation, stream);
}

void launch_gemm_small_m(const GemmParams& p, Stream stream) {
  if (p.weight.scales != nullptr) return launch_fp8<false>(p, 0, stream);
  launch_bf16<false>(p, 0, stream);
}

}  // namespace sluice::kernels::cuda
