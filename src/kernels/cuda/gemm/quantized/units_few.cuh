// GEMMs of up to eight tokens with matrices in units.
//
// One or two persistent blocks on every multiprocessor walk over tiles of RowTiles rows of units (of gated GEMMs one of
// gates and one of ups). A producer warp keeps a ring of stages of 8 * Depth units of each row full, in contiguous copies.
// Eight warps have Depth units of each row of a stage and multiply them with mma m16n8k16, tokens as the eight columns.
// At the end of a tile they leave their sums in shared memory and go on; one more warp adds them up and stores results.
// Where the tokens are few a block takes half of the shared memory and of the registers, and the next such kernel's
// blocks fill their rings beside it. x stays in shared memory, with its sums over groups of columns, where a block has
// several tiles and it fits, else it comes with the stages.
// A token that is to be normed first does stay. Of queries, keys and values (Roped) a tile has 16 rows of each half of a head.
//
// Bytes: the units once, x once for every block. Sums do not depend on the number of tokens.
#pragma once

#include "kernels/cuda/gemm/quantized/units_few_finish.cuh"
#include "kernels/cuda/gemm/quantized/units_few_norm.cuh"

namespace sluice::kernels::cuda {

template <class S>
__device__ __forceinline__ void few_produce(const FewArguments& p, const CUtensorMap* x_map,
                                            const FewPlaces<S>& at, int mine) {
  const uint64_t policy = read_once_policy();
  const int total = mine * p.steps, ahead = total < p.stages ? total : p.stages;
  const int64_t row_bytes = int64_t{p.units} * S::kUnit;
  const int row_tiles = (p.rows + kUnitRows - 1) / kUnitRows;           // of results
  const int apart = S::Gated ? row_tiles : S::Roped ? p.rope.half : 1;  // rows of units of a tile
  struct Cursor {
    int step = 0, stage = 0, round = 0, tile;
  };
  const auto next = [&](Cursor& c) {
    if (++c.stage == p.stages) c.stage = 0, ++c.round;
    if (++c.step == p.steps) c.step = 0, c.tile += gridDim.x;
  };
  const auto load_weights = [&](const Cursor& c) {
    const int left = p.units - c.step * S::kColumns, count = left < S::kColumns ? left : S::kColumns;
    const int first = S::Gated || S::Roped ? c.tile + c.tile / apart * apart : c.tile * S::RowTiles;
    const int left_rows = S::Gated || S::Roped ? S::RowTiles : row_tiles - first;
    const int rows = left_rows < S::RowTiles ? left_rows : S::RowTiles;
    const uint32_t bytes = count * S::kUnit, barrier = at.full + 8 * c.stage;
    barrier_expect(barrier, rows * bytes + (p.x_resident != 0 ? 0 : p.x_bytes));
    const uint8_t* from = p.weights + first * row_bytes + int64_t{c.step} * S::kColumns * S::kUnit;
    const uint32_t to = at.ring + c.stage * p.stage_bytes;
#pragma unroll
    for (int r = 0; r < S::RowTiles; ++r)
      if (r < rows)
        copy_bytes(to + r * S::kColumns * S::kUnit, from + r * apart * row_bytes, bytes, barrier, policy);
  };
  const auto load_x = [&](const Cursor& c) {
    if (p.x_resident == 0)
      tma_load_3d(at.ring + c.stage * p.stage_bytes + S::kWeightBytes, x_map, 0, 0, c.step * S::kColumns,
                  at.full + 8 * c.stage);
  };
  if (!S::Roped) allow_dependents();
  Cursor c;
  c.tile = blockIdx.x;
  for (int i = 0; i < ahead; ++i, next(c)) load_weights(c);
  wait_for_producer();
  // Attention reads what earlier steps wrote, and the step's arrays, before it waits.
  if (S::Roped) allow_dependents();
  if (p.x_resident != 0 && p.normed == nullptr) {
    barrier_expect(at.x_full, p.steps * p.x_bytes);
    for (int step = 0; step < p.steps; ++step)
      tma_load_3d(at.x + step * p.x_bytes, x_map, 0, 0, step * S::kColumns, at.x_full);
  }
  c = Cursor();
  c.tile = blockIdx.x;
  for (int i = 0; i < ahead; ++i, next(c)) load_x(c);
  for (int i = ahead; i < total; ++i, next(c)) {
    barrier_wait(at.empty + 8 * c.stage, (c.round - 1) & 1);
    load_weights(c);
    load_x(c);
  }
}

// Fragments of the tokens for a warp's columns number d of a step; x: where the step's begin.
template <class S>
__device__ __forceinline__ void few_tokens(const FewArguments& p, uint32_t x, int d, uint32_t (&b)[4][2]) {
  const int lane = threadIdx.x & 31, token = (lane & 7) < p.n ? lane & 7 : p.n - 1;
  const int row = (d * S::kWarps + static_cast<int>(threadIdx.x >> 5)) * p.n + token, turn = row & 7;
  uint32_t low[4], high[4];
  load_matrices(x + row * 128 + (((lane >> 3) ^ turn) << 4), low);
  load_matrices(x + row * 128 + (((4 + (lane >> 3)) ^ turn) << 4), high);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    b[i][0] = low[2 * i], b[i][1] = low[2 * i + 1];
    b[2 + i][0] = high[2 * i], b[2 + i][1] = high[2 * i + 1];
  }
}

// A warp's share of a stage: its first unit, the step's x, sums of x that are kept, units of the row from there on.
struct FewStage {
  const uint8_t* unit;
  uint32_t x;
  const float2* kept;
  int left;
};

// Whole: all units of the stage exist. Kept: sums of x lie in shared memory.
template <class S, bool Whole, bool Kept>
__device__ __forceinline__ void few_multiply(const FewArguments& p, const FewStage& stage,
                                             float (&acc)[S::RowTiles][4]) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int d = 0; d < S::Depth; ++d) {
    if (!Whole && d * S::kWarps >= stage.left) break;
    uint32_t b[4][2];
    few_tokens<S>(p, stage.x, d, b);
    const typename S::Sums sums =
        Kept ? typename S::Sums(stage.kept + d * S::kWarps * S::kKept, lane & 3) : typename S::Sums(b);
#pragma unroll
    for (int r = 0; r < S::RowTiles; ++r) {
      Unit<S::U> held;
      held.load(stage.unit + (r * S::kColumns + d * S::kWarps) * S::kUnit, lane);
      multiply_eight(held, p.table, b, sums, acc[r]);
    }
  }
}

// The sums of x over the columns of a warp, for all of its tiles.
template <class S>
__device__ __forceinline__ void few_keep(const FewArguments& p, const FewPlaces<S>& at) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  for (int i = 0; i * S::kWarps + warp < p.units; ++i) {
    uint32_t b[4][2];
    few_tokens<S>(p, at.x + i / S::Depth * p.x_bytes, i % S::Depth, b);
    const typename S::Sums sums(b);
    if (lane < 4) sums.keep(at.kept + (i * S::kWarps + warp) * S::kKept, lane);
  }
  __syncwarp();
}

template <class S>
__device__ __forceinline__ void few_consume(const FewArguments& p, uint8_t* base, const FewPlaces<S>& at,
                                            int mine) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  FewNorm<S>::fetch(p);
  wait_for_producer();  // without taking turns from the kernel in front
  if (p.normed != nullptr) {
    FewNorm<S>::share(p, at, base);
  } else if (p.x_resident != 0) {
    barrier_wait(at.x_full, 0);
    if constexpr (S::Sums::kNeeded) few_keep<S>(p, at);
  }
  int stage = 0, parity = 0;
  for (int j = 0; j < mine; ++j) {
    float acc[S::RowTiles][4] = {};
    for (int step = 0; step < p.steps; ++step) {
      const uint32_t here = at.ring + stage * p.stage_bytes;
      const int first = step * S::kColumns + warp;
      const FewStage own{base + (here - at.x) + warp * S::kUnit,
                         p.x_resident != 0 ? at.x + step * p.x_bytes : here + S::kWeightBytes,
                         at.kept + first * S::kKept, p.units - first};
      barrier_wait(at.full + 8 * stage, parity);
      const bool whole = own.left > S::kColumns - S::kWarps;
      if (whole && p.x_resident != 0) {
        few_multiply<S, true, true>(p, own, acc);
      } else if (whole) {
        few_multiply<S, true, false>(p, own, acc);
      } else {
        few_multiply<S, false, false>(p, own, acc);
      }
      // What was read has been multiplied: the TMA unit cannot overtake it.
      __syncwarp();
      if (lane == 0) barrier_arrive(at.empty + 8 * stage);
      if (++stage == p.stages) stage = 0, parity ^= 1;
    }
    if (j >= 2) barrier_wait(at.sums_empty + 8 * (j & 1), ((j >> 1) - 1) & 1);
    float* sums = at.sums + (j & 1) * at.sum_count;
#pragma unroll
    for (int r = 0; r < S::RowTiles; ++r) {
      float* sum = sums + (warp * S::kRows + r * kUnitRows + g) * p.pitch + t * 2;
      if (t * 2 < p.n) sum[0] = acc[r][0], sum[8 * p.pitch] = acc[r][2];
      if (t * 2 + 1 < p.n) sum[1] = acc[r][1], sum[8 * p.pitch + 1] = acc[r][3];
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(at.sums_full + 8 * (j & 1));
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 2)
    units_few_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ FewArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  uint8_t* base = raw + bytes_to_aligned(raw);
  const FewPlaces<S> at(base, p);
  const int warp = threadIdx.x >> 5;
  const int blocks = static_cast<int>(gridDim.x),
            mine = (p.tiles - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      barrier_init(at.full + 8 * s, 1);
      barrier_init(at.empty + 8 * s, S::kWarps);
    }
    barrier_init(at.x_full, 1);
    for (int s = 0; s < 2; ++s) {
      barrier_init(at.sums_full + 8 * s, S::kWarps);
      barrier_init(at.sums_empty + 8 * s, 1);
    }
    barriers_ready();
  }
  __syncthreads();
  if (warp < S::kWarps) {
    few_consume<S>(p, base, at, mine);
  } else if (warp == S::kWarps) {
    if constexpr (S::Roped) {
      few_finish_rope<S>(p, at, mine);
    } else {
      few_finish<S>(p, at, mine);
    }
  } else if (one_lane()) {
    few_produce<S>(p, &x_map, at, mine);
  }
}

// Where x stays, how many stages there are, and how much memory that takes: 0 where it does not fit.
template <class S>
int few_memory(FewArguments& a, int blocks, int limit) {
  const int room = limit - 1024 - S::kBarrierBytes - 2 * S::kWarps * S::kRows * a.pitch * 4;
  const int x_bytes = a.steps * (a.x_bytes + S::kColumns * S::kKept * 8);
  const int least = a.normed != nullptr ? 3 : 4;
  a.x_resident =
      (a.normed != nullptr || blocks < a.tiles) && x_bytes + least * S::kWeightBytes <= room ? 1 : 0;
  a.stage_bytes = S::kWeightBytes + (a.x_resident != 0 ? 0 : a.x_bytes);
  const int left = room - (a.x_resident != 0 ? x_bytes : 0);
  a.stages = left / a.stage_bytes < S::kMostStages ? left / a.stage_bytes : S::kMostStages;
  if (a.stages < 3 || (a.normed != nullptr && a.x_resident == 0)) return 0;
  // No more stages than a block fills: what is left is for the blocks of the kernels in front and behind.
  const int most = (a.tiles + blocks - 1) / blocks * a.steps;
  if (most < a.stages) a.stages = most;
  return limit - left + a.stages * a.stage_bytes;
}

// Blocks: on a multiprocessor.
template <class S, int Blocks>
void launch_few_shape(const UnitsGemmParams& u, Stream stream, const FewRope& rope = {}) {
  static const int processors = multiprocessors();
  const auto kernel = units_few_kernel<S>;
  static const cudaError_t attribute =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kAllShared);
  check_launch(attribute, "units, few tokens");
  const GemmParams& p = u.gemm;
  FewArguments a{};
  a.weights = static_cast<const uint8_t*>(p.weight.data);
  a.out = static_cast<bf16*>(p.out.data);
  a.bias = p.bias;
  a.out_stride = p.out.stride_n;
  a.table = u.table;
  a.rope = rope;
  a.added = p.added;
  a.x = static_cast<const bf16*>(p.x.data);
  a.gain = p.norm.gain;
  a.normed = static_cast<bf16*>(p.norm.out);
  a.eps = p.norm.eps;
  a.n = static_cast<int>(p.x.n);
  a.rows = static_cast<int>(S::Gated ? p.weight.rows / 2 : p.weight.rows);
  a.units = static_cast<int>(p.weight.cols / kUnitCols);
  a.steps = (a.units + S::kColumns - 1) / S::kColumns;
  a.tiles = (a.rows + S::kResults - 1) / S::kResults;
  a.activation = u.activation;
  a.x_bytes = S::kColumns * a.n * 128;
  a.pitch = a.n | 1;
  int blocks = a.tiles < Blocks * processors ? a.tiles : Blocks * processors;
  int shared = few_memory<S>(a, blocks, S::kHalfShared);
  if (shared == 0) {
    blocks = a.tiles < processors ? a.tiles : processors;
    shared = few_memory<S>(a, blocks, S::kAllShared);
  }
  check_launch(shared > 0 ? cudaSuccess : cudaErrorInvalidValue, "units of this width");
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  const CUtensorMap x = make_tensor_map(p.x.data, {3,
                                                   {64, size(a.n), size(a.units)},
                                                   {size(p.x.stride_n * 2), 128},
                                                   {64, static_cast<uint32_t>(a.n), S::kColumns}});
  launch("units, few tokens", kernel,
         Grid{dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads), static_cast<size_t>(shared)}, stream, x,
         a);
}

template <Units U>
void launch_few(const UnitsGemmParams& u, Stream stream) {
  constexpr int kRowBytes = 16 * unit_bytes(U);  // of a row of units in a deep stage
  constexpr int kPairDepth = 2 * kRowBytes <= 24 * 1024 ? 2 : 1,
                kLongDepth = 3 * kRowBytes <= 32 * 1024 ? 2 : 1;
  const bool few = u.gemm.x.n <= 4;
  if (u.gated != 0 && few) return launch_few_shape<FewShape<U, 2, true, kPairDepth>, 2>(u, stream);
  if (u.gated != 0) return launch_few_shape<FewShape<U, 2, true, 1>, 2>(u, stream);
  if (u.gemm.weight.rows >= kLongMatrix && few)
    return launch_few_shape<FewShape<U, 3, false, kLongDepth>, 2>(u, stream);
  if (u.gemm.weight.rows >= kLongMatrix) return launch_few_shape<FewShape<U, 3, false, 1>, 2>(u, stream);
  // Two rows of units to a tile where that gives every block one tile or more.
  if (few && u.gemm.weight.rows > 4096) return launch_few_shape<FewShape<U, 2, false, 1>, 2>(u, stream);
  launch_few_shape<FewShape<U, 1, false, 2>, 2>(u, stream);
}

template <Units U>
void launch_few_rope(const UnitsRopeParams& p, Stream stream) {
  FewRope rope{};
  rope.angles = p.rope.rope.angles;
  rope.angle_stride = p.rope.rope.angle_stride;
  rope.k = p.rope.write.k;
  rope.v = p.rope.write.v;
  rope.table = p.rope.write.table;
  rope.half = static_cast<int>(p.rope.rope.x.dim / (2 * kUnitRows));
  rope.heads = static_cast<int>(p.rope.rope.x.heads);
  rope.kv_heads = static_cast<int>(p.rope.write.key.heads);
  launch_few_shape<FewShape<U, 2, false, 1, true>, 2>(p.units, stream, rope);
}

}  // namespace sluice::kernels::cuda
