// GEMMs of many tokens or entries with packed matrices: some rows at a time become bf16, then they are multiplied.
#include <algorithm>

#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kPanelBytes = int64_t{128} << 20;
// Mean entries of an expert from which panels of one part, and of two, beat decoding in tiles.
constexpr int64_t kFewestEntries = 40, kFewestOfTwoParts = 80;

// bf16 holds four bits times a power of two; of other packed types f32 entries are to see the rest, too.
int32_t parts_of(const Matrix& matrix, DType entries) {
  const bool exact = matrix.type == DType::BF16 || matrix.type == DType::MXFP4;
  return entries == DType::F32 && !exact ? 2 : 1;
}

}  // namespace

DequantGemmPlan::DequantGemmPlan(const Matrix& matrix, int64_t groups, DType entries)
    : parts(parts_of(matrix, entries)), row_bytes(parts * panel_width(matrix.cols) * 2) {
  const int64_t fitting = std::max<int64_t>(256, kPanelBytes / row_bytes / 256 * 256);
  rows = std::min(fitting, matrix.rows);
  together = rows < matrix.rows ? 1 : std::clamp<int64_t>(kPanelBytes / (rows * row_bytes), 1, groups);
}

Matrix in_panel(Matrix matrix) {
  matrix.type = DType::BF16;
  matrix.scales = nullptr;
  matrix.row_bytes = panel_width(matrix.cols) * 2;
  return matrix;
}

bool dequant_gemm_pays(const Matrix& matrix, DType entries, int64_t count) {
  return count >= (parts_of(matrix, entries) == 1 ? kFewestEntries : kFewestOfTwoParts);
}

// For bf16 tokens, with the GEMMs of bf16 matrices.
void CudaBackendImpl::dequant_gemm(const GemmParams& p) {
  const int64_t stride = p.weight.cols;  // block types have whole blocks: a multiple of 32
  const int64_t fitting = std::max<int64_t>(128, kPanelBytes / (2 * stride) / 128 * 128);
  const int64_t step = std::min(fitting, p.weight.rows);
  void* panel = scratch_.at_least(static_cast<size_t>(step * stride * 2));
  for (int64_t row = 0; row < p.weight.rows; row += step) {
    const int64_t rows = std::min(step, p.weight.rows - row);
    DequantizeParams d = blank<DequantizeParams>();
    d.source = p.weight;
    d.source.data = static_cast<const std::byte*>(p.weight.data) + row * p.weight.row_bytes;
    d.source.rows = rows;
    d.out = panel;
    d.stride = stride;
    issue(launch_dequantize, d);
    GemmParams part = p;
    part.weight.data = panel;
    part.weight.type = DType::BF16;
    part.weight.scales = nullptr;
    part.weight.rows = rows;
    part.weight.row_bytes = stride * 2;
    part.out.data = offset_columns(p.out, row);
    part.out.dim = rows;
    part.bias = p.bias != nullptr ? p.bias + row : nullptr;
    gemm_plain(part);
  }
}

void CudaBackendImpl::dequant_grouped_gemm(const GroupedGemmSm90Params& all, const Matrix& matrix,
                                           const void* const* matrices, void* panel) {
  const DequantGemmPlan cut(matrix, all.groups, all.out.type);
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
      issue(launch_dequant_gemm, d);
      GroupedGemmSm90Params p = all;
      p.out.data = offset_columns(all.out, row);
      p.out.dim = d.source.rows;
      p.shape = in_panel(d.source);
      p.panel = panel;
      p.panel_parts = cut.parts;
      p.begin = d.begin;
      if (all.biases != nullptr) p.biases = all.biases + group;
      p.bias_row = row;
      p.groups = static_cast<int32_t>(d.count);
      issue(launch_grouped_gemm_sm90, p);
    }
  }
}

bool CudaBackendImpl::dequant_gemm_f32(const GemmParams& gemm) {
  const View& x = gemm.x;
  const bool pairs = reinterpret_cast<uintptr_t>(gemm.out.data) % 8 == 0 && gemm.out.stride_n % 2 == 0;
  if (!pairs || !aligned_tokens(x) || !experts_fit(in_panel(gemm.weight), 1, x.n)) return false;
  const int64_t entries = (x.n * x.dim * 4 + 255) / 256 * 256;
  const DequantGemmPlan cut(gemm.weight, 1, x.type);
  auto* const memory = static_cast<std::byte*>(scratch_.at_least(static_cast<size_t>(entries + cut.bytes())));
  EntriesParams e = blank<EntriesParams>();
  e.x = x;
  e.out = memory;
  e.entries = x.n;
  issue(launch_entries, e);
  GroupedGemmSm90Params p = blank<GroupedGemmSm90Params>();
  p.out = gemm.out;
  p.x = memory;
  p.bias = gemm.bias;
  p.groups = 1;
  dequant_grouped_gemm(p, gemm.weight, nullptr, memory + entries);
  return true;
}

}  // namespace sluice::kernels::cuda
