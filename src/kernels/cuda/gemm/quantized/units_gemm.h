// GEMMs with matrices in units (units.h).
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention_params.h"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {

// Rows of a block type to rows [first_row, first_row + rows) of a matrix in units. What they take of `out` is zero.
struct PackUnitsParams {
  const void* source;
  void* out;                                        // the matrix
  int64_t first_row, rows, cols, source_row_bytes;  // cols: a multiple of 64
  DType type;
};
void launch_pack_units(const PackUnitsParams&, Stream);

// `units` units of Q4Offset to as many of Q4Group. *differ is set where a row of one has two scales or offsets.
struct GroupUnitsParams {
  const void* source;
  void* out;
  int32_t* differ;
  int64_t units;
};
void launch_group_units(const GroupUnitsParams&, Stream);

// Units to bf16, cols elements from row to row. The first row begins a row of units.
struct UnpackUnitsParams {
  Matrix source;
  UnitTable table;
  void* out;
};
void launch_unpack_units(const UnpackUnitsParams&, Stream);

UnitTable unit_table(DType type);

// out = x · weightᵀ + bias, or of a gated GEMM activation(gate) * up, as GatedGemmParams has it. bf16.
struct UnitsGemmParams {
  GemmParams gemm;
  UnitTable table;
  int32_t gated, activation;
};
// Gated: whole rows of units make the gates.
bool units_fit(const UnitsGemmParams&);
// Whether launch_units_few takes a norm of its token, where units_fit().
bool units_norms(const UnitsGemmParams&);
// Up to kUnitsFew tokens: a block makes 16 rows, or 16 gates and their ups, and its warps share out the columns.
inline constexpr int64_t kUnitsFew = 8, kMostNormed = 8192;  // kMostNormed: columns
void launch_units_few(const UnitsGemmParams&, Stream);
// The same of a matrix of queries, keys and values, and what launch_rope_write() does with the result.
struct UnitsRopeParams {
  UnitsGemmParams units;
  RopeWriteParams rope;
};
bool units_rope_fits(const UnitsRopeParams&);
void launch_units_rope(const UnitsRopeParams&, Stream);
// Any number of tokens, in tiles of 128 rows.
void launch_units_many(const UnitsGemmParams&, Stream);

// The two for one kind of units; units_<kind>.cu has them.
template <Units U>
struct UnitsGemm {
  static void few(const UnitsGemmParams&, Stream);
  static void rope(const UnitsRopeParams&, Stream);
  static void many(const UnitsGemmParams&, Stream);
};

template <class Visit>
bool visit_units(Units units, Visit visit) {
  switch (units) {
    case Units::Q4Offset:
      visit(std::integral_constant<Units, Units::Q4Offset>{});
      return true;
    case Units::Q4Table:
      visit(std::integral_constant<Units, Units::Q4Table>{});
      return true;
    case Units::Q5Offset:
      visit(std::integral_constant<Units, Units::Q5Offset>{});
      return true;
    case Units::Q6:
      visit(std::integral_constant<Units, Units::Q6>{});
      return true;
    case Units::Q8:
      visit(std::integral_constant<Units, Units::Q8>{});
      return true;
    case Units::Q4Group:
      visit(std::integral_constant<Units, Units::Q4Group>{});
      return true;
    case Units::None:
      return false;
  }
  return false;
}

}  // namespace sluice::kernels::cuda
