#include "kernels/cuda/gemm/grouped/grouped_gemm.h"

#include <algorithm>

#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {
constexpr int64_t kPanelBytes = int64_t{128} << 20;
}

int32_t panel_parts(const Matrix& matrix, DType entries) {
  const bool exact = matrix.type == DType::BF16 || matrix.type == DType::MXFP4;
  return entries == DType::F32 && !exact ? 2 : 1;
}

int64_t rows_in_panel(int64_t row_bytes, int64_t least) {
  return std::max(least, kPanelBytes / row_bytes / least * least);
}

DequantGemmPlan::DequantGemmPlan(const Matrix& matrix, int64_t groups, DType entries)
    : parts(panel_parts(matrix, entries)), row_bytes(parts * panel_width(matrix.cols) * 2) {
  rows = std::min(rows_in_panel(row_bytes, 256), matrix.rows);
  together = rows < matrix.rows ? 1 : std::clamp<int64_t>(kPanelBytes / (rows * row_bytes), 1, groups);
}

Matrix in_panel(Matrix matrix) {
  matrix.type = DType::BF16;
  matrix.scales = nullptr;
  matrix.row_bytes = panel_width(matrix.cols) * 2;
  return matrix;
}

void grouped_gemm(StepContext& step, const GroupedGemmParams& common, const PointerTable& table) {
  for (const PointerTable::Run& run : table.runs) {
    GroupedGemmParams p = common;
    p.weight = run.shape;
    p.weights = run.weights;
    p.biases = run.biases;
    p.groups = run.count;
    p.out.data = offset_columns(common.out, run.row);
    p.out.dim = run.shape.rows;
    if (common.begin != nullptr) {
      p.begin = common.begin + run.first;
    } else {
      p.x.data = offset_columns(p.x, run.first * p.x.stride_h);
      p.out.data = offset_columns(p.out, run.first * p.out.stride_h);
    }
    step.issue(launch_grouped_gemm, p);
  }
}

void dequant_grouped_gemm(StepContext& step, const GroupedGemmSm90Params& all, const Matrix& matrix,
                          const void* const* matrices, void* panel) {
  const DequantGemmPlan cut(matrix, all.groups, all.out.type);
  const bool whole = cut.together >= all.groups && cut.rows >= matrix.rows;
  for (int64_t group = 0; group < all.groups; group += cut.together) {
    for (int64_t row = 0; row < matrix.rows; row += cut.rows) {
      DequantGemmParams d = blank<DequantGemmParams>();
      d.source = matrix;
      d.source.rows = std::min(cut.rows, matrix.rows - row);
      if (matrices != nullptr) d.matrices = matrices + group;
      if (all.begin != nullptr) d.begin = all.begin + group;
      d.out = panel;
      d.first_row = row;
      d.count = std::min(cut.together, all.groups - group);
      d.parts = cut.parts;
      step.issue(launch_dequant_gemm, d);
      GroupedGemmSm90Params p = all;
      p.out.data = offset_columns(all.out, row);
      p.out.dim = d.source.rows;
      p.shape = in_panel(d.source);
      p.panel = panel;
      p.panel_parts = cut.parts;
      p.begin = d.begin;
      if (all.biases != nullptr) p.biases = all.biases + group;
      if (!whole) p.counter = nullptr;  // it is of one launch
      p.bias_row = row;
      p.groups = static_cast<int32_t>(d.count);
      step.issue(launch_grouped_gemm_sm90, p);
    }
  }
}

}  // namespace sluice::kernels::cuda
