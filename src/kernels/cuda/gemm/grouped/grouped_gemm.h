// GEMMs of many groups through the context of a step: with matrices in place, or by way of bf16 panels.
#pragma once

#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"
#include "kernels/cuda/gemm/grouped/pointer_tables.h"

namespace sluice::kernels::cuda {

// How packed matrices of `groups` become bf16 for one GEMM: `rows` of as many matrices as go together.
struct DequantGemmPlan {
  DequantGemmPlan(const Matrix& matrix, int64_t groups, DType entries);
  int64_t bytes() const { return rows * together * row_bytes; }
  int32_t parts;
  int64_t row_bytes, rows = 0, together = 0;
};

// bf16 holds four bits times a power of two; of other packed types f32 entries are to see the rest, too, in a second part.
int32_t panel_parts(const Matrix& matrix, DType entries);
// A matrix as a panel has it.
Matrix in_panel(Matrix matrix);
// Rows of bf16 that go into the memory for panels at a time, at least `least`.
int64_t rows_in_panel(int64_t row_bytes, int64_t least);

// By gemm_grouped_generic.cu, one launch for each run of the table. Groups are the weights; matrices and their number are the
// table's.
void grouped_gemm(StepContext& step, const GroupedGemmParams& common, const PointerTable& table);
// The GEMM `all` describes but for its matrices: each is `matrix`, those of several groups at `matrices`. `panel` has
// DequantGemmPlan(...).bytes().
void dequant_grouped_gemm(StepContext& step, const GroupedGemmSm90Params& all, const Matrix& matrix,
                          const void* const* matrices, void* panel);

}  // namespace sluice::kernels::cuda
