// GEMMs of many tokens with matrices in units.
//
// A tile is 128 weight rows, or 128 gates and their ups, x Tokens tokens. Where there are fewer tiles than
// multiprocessors the blocks of a cluster share out a tile's columns. Two sides of eight warps each have all rows: one
// the gates and one the ups, or each every other unit. A warp makes bf16 fragments of its own units in registers, for
// warpgroup instructions with the weights as the 64-row operand, or for mma m16n8k16 where tokens are few. A producer
// warp keeps a ring of stages of two units of each row and of x full with the TMA unit. In the end sums lie in
// shared memory, and each block of a cluster adds up those of some tokens, always in the same order.
//
// Bytes: the units once for every Tokens tokens, x once for every tile of rows.
#pragma once

#include <array>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/quantized/units.cuh"
#include "kernels/cuda/gemm/quantized/units_gemm.h"

namespace sluice::kernels::cuda {

// Parts: 1, or 2 for gates and ups.
template <Units U_, int Tokens_, int Parts_, bool Warpgroups_>
struct ManyShape {
  static constexpr Units U = U_;
  static constexpr int Tokens = Tokens_, Parts = Parts_;
  static constexpr bool Warpgroups = Warpgroups_;
  static constexpr int kRows = 128, kRowTiles = kRows / kUnitRows, kWarps = 16;
  // Units of a row in a stage, and those of them that a warp has: with two, one is prepared while the other is multiplied.
  static constexpr int kOwn = Parts == 2 || Tokens <= 64 ? 2 : 1, kDepth = Parts == 2 ? kOwn : 2 * kOwn;
  static constexpr int kAhead =
      Tokens <= 64 ? 1 : 0;  // units whose wgmmas are under way while the next is prepared
  // Where sums take more registers than every thread can have, the producer's group of warps gives its own away.
  static constexpr bool kUneven = Tokens > 64;
  static constexpr int kThreads = kWarps * 32 + (kUneven ? 128 : 32);
  static constexpr int kPartBytes = kDepth * kRowTiles * unit_bytes(U);
  static constexpr int kXBytes = kDepth * Tokens * 128;
  static constexpr int kStageBytes = kXBytes + Parts * kPartBytes;
  static constexpr int kRoom = 232448 - 2048;
  static constexpr int kStages = kRoom / kStageBytes < 8 ? kRoom / kStageBytes : 8;
  static constexpr int kSums = Tokens / 2, kPieces = kSums / 4;  // of a thread; piece: eight tokens
  static constexpr int kSideBytes = kSums * 1024;
  static constexpr int kSmallMBytes =
      kStages * kStageBytes > 2 * kSideBytes ? kStages* kStageBytes : 2 * kSideBytes;  // sums take its place
  static constexpr int kShared = kSmallMBytes + 2048;
  static_assert(kStages >= 3 && kStageBytes % 1024 == 0 && kPartBytes % 128 == 0 && kSmallMBytes <= kRoom);
};

struct ManyArguments {
  bf16* out;
  const float* bias;
  int64_t out_stride;
  UnitTable table;
  int n, rows;                      // rows: of out
  int steps, token_tiles, sharers;  // sharers: blocks of a cluster
  int activation;
};

// What a block has to do: steps [first, last) of a tile.
struct ManyShare {
  int row, token, rank, first, last;  // row: of units
  __device__ __forceinline__ ManyShare(const ManyArguments& p, int row_tiles, int tokens) {
    const int block = static_cast<int>(blockIdx.x), tile = block / p.sharers;
    rank = block % p.sharers;
    row = tile / p.token_tiles * row_tiles;
    token = tile % p.token_tiles * tokens;
    first = rank * p.steps / p.sharers;
    last = (rank + 1) * p.steps / p.sharers;
  }
};

template <class S>
__device__ __forceinline__ void many_produce(const ManyArguments& p, const CUtensorMap* weights,
                                             const CUtensorMap* x, uint32_t ring, const ManyShare& share) {
  const uint32_t full = ring + S::kSmallMBytes, empty = full + 8 * S::kStages;
  const int total = share.last - share.first, ahead = total < S::kStages ? total : S::kStages;
  const uint64_t policy = read_once_policy();
  const auto load_weights = [&](int i, int stage) {
    const uint32_t to = ring + stage * S::kStageBytes + S::kXBytes, barrier = full + 8 * stage;
    barrier_expect(barrier, S::kStageBytes);
#pragma unroll
    for (int part = 0; part < S::Parts; ++part)
      tma_load_3d(to + part * S::kPartBytes, weights, 0, share.row + part * (p.rows / kUnitRows),
                  (share.first + i) * S::kDepth, barrier, policy);
  };
  const auto load_x = [&](int i, int stage) {
    tma_load_3d(ring + stage * S::kStageBytes, x, 0, share.token, (share.first + i) * S::kDepth,
                full + 8 * stage);
  };
  allow_dependents();
  for (int i = 0; i < ahead; ++i) load_weights(i, i);
  wait_for_producer();
  for (int i = 0; i < ahead; ++i) load_x(i, i);
  int stage = 0, parity = 0;
  for (int i = ahead; i < total; ++i) {
    barrier_wait(empty + 8 * stage, parity);
    load_weights(i, stage);
    load_x(i, stage);
    if (++stage == S::kStages) stage = 0, parity ^= 1;
  }
}

// A warp's part of a stage: sums += units · xᵀ. With warpgroups the wgmmas of its last unit are still under way.
template <class S>
__device__ __forceinline__ void many_multiply(const UnitTable& table, const uint8_t* stage, uint32_t x,
                                              float (&sums)[S::kSums]) {
  const int lane = threadIdx.x & 31, row = threadIdx.x >> 5 & 7, side = threadIdx.x >> 8;
#pragma unroll
  for (int d = 0; d < S::kOwn; ++d) {
    Unit<S::U> held;
    held.load(stage + S::kXBytes + ((side * S::kOwn + d) * S::kRowTiles + row) * unit_bytes(S::U), lane);
    uint32_t a[16];
    fragments(held, table, a);
    const uint32_t tokens = x + (S::Parts == 2 ? d : side * S::kOwn + d) * S::Tokens * 128;
    if constexpr (S::Warpgroups) {
      cute::warpgroup_arrive();
#pragma unroll
      for (int s = 0; s < 4; ++s) multiply(sums, a + 4 * s, describe_operand(tokens + 32 * s));
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<S::kAhead>();
    } else {
#pragma unroll
      for (int i = 0; i < S::Tokens / 8; ++i) {
        const uint32_t from = tokens + (i * 8 + (lane & 7)) * 128;
        uint32_t low[4], high[4];
        load_matrices(from + (((lane >> 3) ^ (lane & 7)) << 4), low);
        load_matrices(from + (((4 + (lane >> 3)) ^ (lane & 7)) << 4), high);
        float* sum = &sums[4 * i];
        mma_bf16(sum, a[0], a[1], a[2], a[3], low[0], low[1]);
        mma_bf16(sum, a[4], a[5], a[6], a[7], low[2], low[3]);
        mma_bf16(sum, a[8], a[9], a[10], a[11], high[0], high[1]);
        mma_bf16(sum, a[12], a[13], a[14], a[15], high[2], high[3]);
      }
    }
  }
}

// Four sums at the same place in block `rank` of the cluster.
__device__ __forceinline__ float4 sums_at(uint32_t address, int rank) {
  float4 v;
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

// Results of every `sharers`th eight tokens of the tile, from the sums of all blocks of the cluster.
template <class S>
__device__ __forceinline__ void many_finish(const ManyArguments& p, uint32_t sums, const ManyShare& share) {
  const int thread = static_cast<int>(threadIdx.x) % 256, side = static_cast<int>(threadIdx.x) / 256;
  const int lane = thread & 31, row0 = share.row * kUnitRows + thread / 32 * 16 + (lane >> 2);
  const auto total = [&](int from, int piece, float4 all) {
    for (int rank = 0; rank < p.sharers; ++rank) {
      const float4 v = sums_at(sums + from * S::kSideBytes + (piece * 256 + thread) * 16, rank);
      all.x += v.x, all.y += v.y, all.z += v.z, all.w += v.w;
    }
    return all;
  };
  for (int piece = share.rank * 2 + side; piece < S::kPieces; piece += 2 * p.sharers) {
    const int token0 = share.token + piece * 8 + (lane & 3) * 2;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f), one = total(0, piece, zero);
    const float4 first = S::Parts == 2 ? one : total(1, piece, one),
                 second = S::Parts == 2 ? total(1, piece, zero) : one;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + i / 2 * 8, token = token0 + i % 2;
      if (row >= p.rows || token >= p.n) continue;
      const auto with_bias = [&](const float4& v, int at) {
        return (i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w) + (p.bias != nullptr ? p.bias[at] : 0.0f);
      };
      float value = with_bias(first, row);
      if constexpr (S::Parts == 2) value = gate(value, with_bias(second, p.rows + row), p.activation);
      p.out[token * p.out_stride + row] = __float2bfloat16(value);
    }
  }
}

template <class S>
__device__ __forceinline__ void many_consume(const ManyArguments& p, uint8_t* base, const ManyShare& share) {
  const uint32_t ring = shared_address(base), full = ring + S::kSmallMBytes, empty = full + 8 * S::kStages;
  int stage = 0, parity = 0, before = -1;
  wait_for_producer();  // without taking turns from the kernel in front
  float sums[S::kSums] = {};
  int step =
      share.first;  // of one or more: a loop that might not run would make the wgmmas wait for each other
  do {
    barrier_wait(full + 8 * stage, parity);
    const int offset = stage * S::kStageBytes;
    many_multiply<S>(p.table, base + offset, ring + offset, sums);
    // The stage before: wgmmas of this one are under way, none of that.
    __syncwarp();
    if ((threadIdx.x & 31) == 0 && before >= 0) barrier_arrive(empty + 8 * before);
    before = stage;
    if (++stage == S::kStages) stage = 0, parity ^= 1;
  } while (++step < share.last);
  if constexpr (S::Warpgroups) cute::warpgroup_wait<0>();
  asm volatile("bar.sync 1, %0;" ::"n"(S::kWarps * 32) : "memory");
  auto* place =
      reinterpret_cast<float4*>(base) + threadIdx.x / 256 * (S::kSideBytes / 16) + threadIdx.x % 256;
#pragma unroll
  for (int i = 0; i < S::kPieces; ++i)
    place[i * 256] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
  asm volatile("bar.sync 1, %0;" ::"n"(S::kWarps * 32) : "memory");
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    units_many_kernel(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
                      const __grid_constant__ ManyArguments p) {
  require_hopper();
  extern __shared__ uint8_t raw[];
  uint8_t* base = raw + bytes_to_aligned(raw);
  const uint32_t ring = shared_address(base), full = ring + S::kSmallMBytes;
  const uint32_t empty = full + 8 * S::kStages;
  const ManyShare share(p, S::kRowTiles, S::Tokens);
  const int warp = threadIdx.x >> 5;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, S::kWarps);
    }
    barriers_ready();
  }
  __syncthreads();
  const auto meet = [&] {
    if (p.sharers > 1) cluster_sync();
  };
  if (warp >= S::kWarps) {
    if constexpr (S::kUneven) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (warp == S::kWarps && one_lane()) many_produce<S>(p, &weights, &x, ring, share);
    __syncwarp();
    meet();
    meet();
  } else {
    if constexpr (S::kUneven) asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
    many_consume<S>(p, base, share);
    meet();
    many_finish<S>(p, ring, share);
    meet();
  }
}

// Units [row tiles, units of a row], read in boxes of [row_tiles, depth]; zero outside.
inline CUtensorMap make_units_map(const Matrix& matrix, int row_tiles, int depth) {
  const auto bytes = static_cast<uint64_t>(unit_bytes(matrix.units));
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  return make_tensor_map(
      matrix.data,
      {3,
       {bytes / 8, size(ceil_div(matrix.rows, kUnitRows)), size(matrix.cols / kUnitCols)},
       {size(matrix.row_bytes * kUnitRows), bytes},
       {static_cast<uint32_t>(bytes / 8), static_cast<uint32_t>(row_tiles), static_cast<uint32_t>(depth)},
       BoxElements::Words});
}

inline constexpr int kMostSharers = 8;
// Clusters of this many blocks of the kernel that the device runs at a time, one block to a multiprocessor.
template <class S>
int clusters_at_once(unsigned sharers) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(sharers);
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = S::kShared;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {sharers, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  check_launch(cudaOccupancyMaxActiveClusters(&count, units_many_kernel<S>, &config), "units, many tokens");
  const int most = multiprocessors() / static_cast<int>(sharers);
  return count < most ? count : most;
}

template <class S>
void launch_many_shape(const UnitsGemmParams& u, Stream stream) {
  static const cudaError_t attribute =
      cudaFuncSetAttribute(units_many_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  check_launch(attribute, "units, many tokens");
  static const std::array<int, kMostSharers + 1> at_once = [] {
    std::array<int, kMostSharers + 1> counts{};
    for (int sharers = 2; sharers <= kMostSharers; ++sharers)
      counts[static_cast<size_t>(sharers)] = clusters_at_once<S>(static_cast<unsigned>(sharers));
    return counts;
  }();
  const GemmParams& p = u.gemm;
  ManyArguments a{};
  a.out = static_cast<bf16*>(p.out.data);
  a.bias = p.bias;
  a.out_stride = p.out.stride_n;
  a.table = u.table;
  a.n = static_cast<int>(p.x.n);
  a.rows = static_cast<int>(p.weight.rows / S::Parts);
  a.token_tiles = static_cast<int>(ceil_div(a.n, S::Tokens));
  a.steps = static_cast<int>(ceil_div(p.weight.cols / kUnitCols, S::kDepth));
  a.activation = u.activation;
  const int tiles = static_cast<int>(ceil_div(a.rows, S::kRows)) * a.token_tiles;
  a.sharers = 1;
  for (int sharers = 2; sharers <= kMostSharers; ++sharers)
    if (tiles <= at_once[static_cast<size_t>(sharers)] && 2 * sharers <= a.steps) a.sharers = sharers;
  const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
  const CUtensorMap x = make_tensor_map(p.x.data, {3,
                                                   {64, size(a.n), size(p.weight.cols / 64)},
                                                   {size(p.x.stride_n * 2), 128},
                                                   {64, S::Tokens, S::kDepth}});
  const auto sharers = static_cast<unsigned>(a.sharers);
  launch("units, many tokens", units_many_kernel<S>,
         Grid{dim3(static_cast<unsigned>(tiles) * sharers), dim3(S::kThreads), S::kShared, sharers}, stream,
         make_units_map(p.weight, S::kRowTiles, S::kDepth), x, a);
}

template <Units U, int Parts>
void launch_many(const UnitsGemmParams& u, Stream stream) {
  const int64_t n = u.gemm.x.n;
  if (n <= 16) return launch_many_shape<ManyShape<U, 16, Parts, false>>(u, stream);
  if (n <= 32) return launch_many_shape<ManyShape<U, 32, Parts, true>>(u, stream);
  if (n <= 64) return launch_many_shape<ManyShape<U, 64, Parts, true>>(u, stream);
  launch_many_shape<ManyShape<U, 128, Parts, true>>(u, stream);
}

}  // namespace sluice::kernels::cuda
