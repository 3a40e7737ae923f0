// How units_few.cuh cuts its work, what its kernel gets, and where that lies in shared memory.
#pragma once

#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/gemm/quantized/units.cuh"
#include "kernels/cuda/gemm/quantized/units_gemm.h"

namespace sluice::kernels::cuda {

template <Units U_, int RowTiles_, bool Gated_, int Depth_, bool Roped_ = false>
struct FewShape {
  static constexpr Units U = U_;
  static constexpr int RowTiles = RowTiles_, Depth = Depth_;
  static constexpr bool Gated = Gated_, Roped = Roped_, Adds = !Gated && RowTiles < 3;
  static constexpr int kUnit = unit_bytes(U);
  static constexpr int kWarps = 8, kThreads = kWarps * 32 + 64,
                       kColumns = kWarps * Depth;  // columns: of units
  static constexpr int kRows = RowTiles * kUnitRows, kResults = Gated ? kUnitRows : kRows;
  // x begins behind it, at a multiple of 1024.
  static constexpr int kWeightBytes = (RowTiles * kColumns * kUnit + 1023) / 1024 * 1024;
  static constexpr int kHalfShared = 115712, kAllShared = 232448;
  // Of a single row of units no more than six: with eight 14336 columns take 14.6 instead of 12.6 us.
  static constexpr int kMostStages = RowTiles == 1 ? 6 : 20;
  static constexpr int kBarrierBytes = 16 * kMostStages + 48;
  using Sums = GroupSums<Unit<U>>;
  static constexpr int kKept = Sums::kNeeded ? Unit<U>::kGroups * 4 : 0;  // pairs of sums to a unit's columns
  static_assert(!Gated || RowTiles == 2, "a row of gates and one of ups");
  static_assert(!Roped || RowTiles == 2, "elements of both halves of a head");
};

// What is done with queries, keys and values: as RopeWriteParams has it.
struct FewRope {
  const float* angles;
  int64_t angle_stride;
  CacheView k, v;
  TableView table;
  int half;  // rows of units of half a head
  int heads, kv_heads;
};

struct FewArguments {
  const uint8_t* weights;
  bf16* out;
  const float* bias;
  int64_t out_stride;
  UnitTable table;
  int n, rows;              // rows: of out
  int units, steps, tiles;  // units of a row of them; steps of kColumns units
  int stages, stage_bytes;  // stage: weights, then x where it comes with them
  int x_bytes, x_resident;  // of a step
  int pitch;                // of sums, from row to row
  int activation, added;
  // A norm of the token, as InputNorm has it, where x stays.
  const bf16* x;
  const float* gain;
  bf16* normed;  // null: none
  float eps;
  FewRope rope;
};

// Where things lie in shared memory: x where it stays, stages, barriers, two sets of sums, sums of x where it stays.
template <class S>
struct FewPlaces {
  uint32_t x, ring, full, empty, x_full, sums_full, sums_empty;
  float* sums;
  float2* kept;
  int sum_count;

  __device__ __forceinline__ FewPlaces(uint8_t* base, const FewArguments& p) {
    x = shared_address(base);
    ring = x + (p.x_resident != 0 ? p.steps * p.x_bytes : 0);
    sum_count = S::kWarps * S::kRows * p.pitch;
    full = ring + p.stages * p.stage_bytes;
    empty = full + 8 * S::kMostStages;
    x_full = empty + 8 * S::kMostStages;
    sums_full = x_full + 8;
    sums_empty = sums_full + 16;
    sums = reinterpret_cast<float*>(base + (full - x) + S::kBarrierBytes);
    kept = reinterpret_cast<float2*>(sums + 2 * sum_count);
  }
};

}  // namespace sluice::kernels::cuda
