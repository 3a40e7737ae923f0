#include "kernels/cuda/gemm/gemm_dispatch.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/grouped/grouped_gemm.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kUnpackedBytes = int64_t{512} << 20;  // at most

int64_t bf16_bytes(const Matrix& matrix) {
  return matrix.rows * matrix.cols * 2;
}

bool unpacked_fits(const Matrix& matrix) {
  return bf16_bytes(matrix) <= kUnpackedBytes;
}

Stored stored_of(const Matrix& matrix) {
  if (matrix.units != Units::None) return Stored::Units;
  if (matrix.scales != nullptr) return Stored::Fp8;
  return is_block(matrix.type) ? Stored::Blocks : Stored::Bf16;
}

GemmShape shape_of(GemmUse use, const GemmParams& p) {
  if (use == GemmUse::Gated) return gemm_swiglu_busy(p) ? GemmShape::Medium : GemmShape::Small;
  if (p.weight.rows >= kLongMatrix) return GemmShape::Tall;
  return gemv_at_once(p) ? GemmShape::Small : GemmShape::Medium;
}

UnitsGemmParams units_params(const GemmParams& gemm, std::optional<int32_t> activation) {
  UnitsGemmParams u = blank<UnitsGemmParams>();
  u.gemm = gemm;
  u.table = unit_table(gemm.weight.type);
  u.gated = activation ? 1 : 0;
  u.activation = activation.value_or(0);
  return u;
}

// Rows [row, row + rows) of the matrix `weight`, which is as it lies in memory or another copy of those rows.
GemmParams rows_of(const GemmParams& whole, int64_t row, int64_t rows) {
  GemmParams p = whole;
  p.weight.rows = rows;
  p.weight.data = static_cast<const std::byte*>(whole.weight.data) + row * whole.weight.row_bytes;
  p.out.data = offset_columns(whole.out, row);
  p.out.dim = rows;
  p.bias = whole.bias != nullptr ? whole.bias + row : nullptr;
  return p;
}

}  // namespace

GemmParams gemm_params(const TensorView& out, const TensorView& x, const Weight& weight) {
  GemmParams p = blank<GemmParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  SLUICE_CHECK_EQ(p.x.dim, weight.cols);
  SLUICE_CHECK_EQ(p.out.n, p.x.n);
  SLUICE_CHECK(out.dtype == x.dtype || out.dtype == DType::F32);
  return p;
}

GemmDispatch::GemmDispatch(StepContext& step, const CudaOptions& options)
    : step_(step), library_(step, options), heads_(step, PointerTables::TensorMaps::None) {}

void GemmDispatch::reserve(const Matrix& matrix) {
  if (matrix.scales != nullptr) step_.rounds_tokens = true;
  if (matrix.units == Units::None) return;
  unpacked_.at_least(static_cast<size_t>(std::min(bf16_bytes(matrix), kUnpackedBytes)));
}

const GemmRow& GemmDispatch::row_of(GemmUse use, const GemmParams& p) const {
  return gemm_row({step_.arch, use, gemm_mode(p.x.type, step_.deterministic), stored_of(p.weight),
                   shape_of(use, p), p.x.n});
}

bool GemmDispatch::has_kernel(GemmUse use, const GemmParams& p) const {
  return row_of(use, p).kernels[0] != GemmKernel::None;
}

// -- what the back-end asks for

View GemmDispatch::in_order(const View& x, const DeviceWeight& weight) {
  if (weight.order == nullptr || x.n == 0) return x;
  const auto bytes = static_cast<size_t>(x.n * x.dim * info(x.type).block_bytes);
  OrderColumnsParams p = blank<OrderColumnsParams>();
  p.x = x;
  p.out = packed(x, x.type, ordered_.at_least(bytes));
  p.order = weight.order;
  step_.issue(launch_order_columns, p);
  return p.out;
}

void GemmDispatch::matmul(TensorView out, TensorView x, const Weight& weight) {
  // A norm that is put off is for one GEMM.
  if (!weight.runs.empty()) {
    step_.flush();
    return for_runs(out, weight, [&](TensorView rows, const Weight& run) { matmul(rows, x, run); });
  }
  GemmParams whole = gemm_params(out, x, weight);
  SLUICE_CHECK_EQ(whole.out.dim, weight.rows);
  if (whole.x.n == 0) return;
  const DeviceWeight& stored = device_weight(weight);
  whole.x = in_order(whole.x, stored);
  if (stored.matrices.size() != 1) step_.flush();
  int64_t row = 0;
  for (const Matrix& matrix : stored.matrices) {
    GemmParams p = whole;
    p.weight = matrix;
    p.out.data = offset_columns(whole.out, row);
    p.out.dim = matrix.rows;
    p.bias = stored.bias != nullptr ? stored.bias + row : nullptr;
    out.dtype == x.dtype ? gemm(p) : wide(p);
    row += matrix.rows;
  }
}

void GemmDispatch::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  GroupedGemmParams p = blank<GroupedGemmParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  p.groups = static_cast<int64_t>(weights.size());
  SLUICE_CHECK(p.x.heads == p.groups && p.out.heads == p.groups);
  SLUICE_CHECK(p.x.dim == weights[0].cols && p.out.dim == weights[0].rows);
  const PointerTable& table = heads_.of(weights);
  SLUICE_CHECK(table.orders == nullptr);
  grouped_gemm(step_, p, table);
}

bool GemmDispatch::matmul_gated(TensorView out, TensorView x, const Weight& gate_up, Activation activation) {
  if (!gate_up.runs.empty()) return false;
  const DeviceWeight& stored = device_weight(gate_up);
  GatedGemmParams g = blank<GatedGemmParams>();
  g.gemm = gemm_params(out, x, gate_up);
  SLUICE_CHECK_EQ(2 * g.gemm.out.dim, gate_up.rows);
  if (g.gemm.x.n == 0) return true;
  g.gemm.weight = stored.matrices[0];
  g.gemm.bias = stored.bias;
  g.activation = static_cast<int32_t>(activation);
  if (stored.matrices.size() != 1 || !has_kernel(GemmUse::Gated, g.gemm)) return false;
  g.gemm.x = in_order(g.gemm.x, stored);
  return gated(g);
}

bool GemmDispatch::rounds_tokens(TensorView out, TensorView x, const Weight& weight) const {
  if (!weight.runs.empty()) return false;
  const DeviceWeight& stored = device_weight(weight);
  if (stored.matrices.size() != 1 || stored.order != nullptr || x.dim(0) == 0) return false;
  GemmParams p = gemm_params(out, x, weight);
  p.weight = stored.matrices[0];
  return row_of(GemmUse::Plain, p).kernels[0] == GemmKernel::CublasLtFp8;
}

bool GemmDispatch::matmul_add(TensorView sum, TensorView x, const Weight& weight) {
  if (!weight.runs.empty()) return false;
  const DeviceWeight& stored = device_weight(weight);
  GemmParams p = gemm_params(sum, x, weight);
  SLUICE_CHECK_EQ(p.out.dim, weight.rows);
  p.weight = stored.matrices[0];
  if (p.x.n == 0 || stored.matrices.size() != 1 || stored.bias != nullptr) return false;
  if (!has_kernel(GemmUse::Added, p)) return false;
  p.x = in_order(p.x, stored);
  return added(p);
}

// -- rows of the table

void GemmDispatch::gemm(const GemmParams& p) {
  // Of rows this short, a norm by itself costs more than the GEMV loses to the row's kernel.
  constexpr int64_t kShortRow = 2048;
  if (p.x.n == 1 && p.weight.cols <= kShortRow && step_.norms(p.x) && gemv_norms(p)) {
    run(GemmKernel::Gemv, p);
    return;
  }
  for (const GemmKernel kernel : row_of(GemmUse::Plain, p).kernels)
    if (run(kernel, p)) return;
}

// Many tokens go to cuBLASLt, unless their number may not matter; packed matrices by way of bf16 results.
void GemmDispatch::wide(const GemmParams& p) {
  constexpr int64_t kManyTokens = 512;
  const bool fits = gemm_wide_fits(p);
  const bool plain = p.weight.type == DType::BF16 && !step_.deterministic;
  if (plain && (p.x.n >= kManyTokens || !fits) && library_.multiply(p)) return;
  if (plain && fits && p.x.n >= kManyTokens && wide_in_parts(p)) return;
  if (gemm_wide_one_fits(p) && !step_.deterministic)
    return step_.issue(launch_gemm_wide_one, with_norm(p, true));
  if (fits) return step_.issue(launch_gemm_wide, p);
  GemmParams narrow = p;
  narrow.out =
      packed(p.out, DType::BF16, scratch_wide_.at_least(static_cast<size_t>(p.out.n * p.out.dim * 2)));
  gemm(narrow);
  ConvertParams convert = blank<ConvertParams>();
  convert.out = p.out;
  convert.x = narrow.out;
  step_.issue(launch_convert, convert);
}

bool GemmDispatch::wide_in_parts(const GemmParams& p) {
  constexpr int64_t kTogether = 4;
  const int64_t whole = p.weight.rows / kTogether * kTogether;
  if (whole == 0 || whole == p.weight.rows) return false;
  GemmParams most = p, rest = p;
  most.weight.rows = most.out.dim = whole;
  if (!library_.multiply(most)) return false;
  rest.weight.rows = rest.out.dim = p.weight.rows - whole;
  rest.weight.data = static_cast<const std::byte*>(p.weight.data) + whole * p.weight.row_bytes;
  rest.out.data = offset_columns(p.out, whole);
  if (p.bias != nullptr) rest.bias = p.bias + whole;
  step_.issue(launch_gemm_wide, rest);
  return true;
}

bool GemmDispatch::gated(const GatedGemmParams& p) {
  for (const GemmKernel kernel : row_of(GemmUse::Gated, p.gemm).kernels)
    if (run_gated(kernel, p)) return true;
  return false;
}

bool GemmDispatch::added(const GemmParams& p) {
  const GemmKernel kernel = row_of(GemmUse::Added, p).kernels[0];
  if (kernel == GemmKernel::ToBf16 && unpacked_fits(p.weight)) {
    GemmParams plain = p;
    plain.weight = unpacked(p.weight);
    return added(plain);
  }
  if (kernel == GemmKernel::Gemv) {
    GemmParams sum = p;
    sum.added = 1;
    return issue_if(gemv_adds(sum), launch_gemv, sum);
  }
  if (kernel == GemmKernel::UnitsFew) {
    GemmParams sum = p;
    sum.added = 1;
    return units_few(sum);
  }
  return kernel == GemmKernel::CublasLt && library_.add(p);
}

template <class Params>
bool GemmDispatch::issue_if(bool fits, void (*launch)(const Params&, Stream), const Params& params) {
  if (fits) step_.issue(launch, params);
  return fits;
}

bool GemmDispatch::run(GemmKernel kernel, const GemmParams& p) {
  switch (kernel) {
    case GemmKernel::Gemv:
      return issue_if(gemv_fits(p), launch_gemv, with_norm(p, gemv_norms(p)));
    case GemmKernel::SmallM:
      if (!gemm_small_m_fits(p)) return false;
      step_.issue(launch_gemm_small_m, p.weight.scales == nullptr ? with_factors(p) : p);
      return true;
    case GemmKernel::SmallMFixed:
      return fixed_fp8(p);
    case GemmKernel::Fixed:
      return fixed(p);
    case GemmKernel::CublasLtFixed:
      return fixed_library(p);
    case GemmKernel::Split:
      return split(p);
    case GemmKernel::CublasLt:
      return library_.multiply(p);
    case GemmKernel::CublasLtFp8:
      return library_.multiply_fp8(p);
    case GemmKernel::CublasLtSplit:
      return library_.multiply_split(p);
    case GemmKernel::UnitsFew:
      return units_few(p);
    case GemmKernel::UnitsMany: {
      const UnitsGemmParams u = units_params(p, {});
      return issue_if(units_fit(u), launch_units_many, u);
    }
    case GemmKernel::ToBf16:
      units_to_bf16(p);
      return true;
    case GemmKernel::Panels:
      panels(p);
      return true;
    case GemmKernel::PanelsSm90:
      return panels_sm90(p);
    case GemmKernel::Tile:
      tile(p);
      return true;
    default:
      return false;
  }
}

bool GemmDispatch::run_gated(GemmKernel kernel, const GatedGemmParams& p) {
  switch (kernel) {
    case GemmKernel::Gemv: {
      GatedGemmParams normed = p;
      normed.gemm = with_norm(p.gemm, gemv_norms(p.gemm));
      return issue_if(gemv_fits(p.gemm), launch_gemv_gated, normed);
    }
    case GemmKernel::SmallM: {
      if (!gemm_small_m_fits(p.gemm)) return false;
      GatedGemmParams g = p;
      if (p.gemm.weight.scales == nullptr) g.gemm = with_factors(p.gemm);
      step_.issue(launch_gemm_small_m_gated, g);
      return true;
    }
    case GemmKernel::Split:
      return split(p.gemm, p.activation);
    case GemmKernel::Swiglu: {
      const bool silu = p.activation == static_cast<int32_t>(Activation::Silu);
      if (!silu || !gemm_swiglu_fits(p.gemm)) return false;
      step_.issue(launch_gemm_swiglu, p.gemm.x.n <= 128 ? with_factors(p.gemm) : p.gemm);
      return true;
    }
    case GemmKernel::UnitsFew:
      return units_few(p.gemm, p.activation);
    case GemmKernel::UnitsMany: {
      const UnitsGemmParams u = units_params(p.gemm, p.activation);
      return issue_if(units_fit(u), launch_units_many, u);
    }
    case GemmKernel::ToBf16: {
      if (!unpacked_fits(p.gemm.weight)) return false;
      GatedGemmParams plain = p;
      plain.gemm.weight = unpacked(p.gemm.weight);
      return gated(plain);
    }
    default:
      return false;
  }
}

bool GemmDispatch::units_few(const GemmParams& p, std::optional<int32_t> activation) {
  UnitsGemmParams u = units_params(p, activation);
  if (!units_fit(u)) return false;
  u.gemm = with_norm(p, units_norms(u));
  // Perhaps of queries, keys and values.
  const bool rotates =
      step_.mode != Mode::Eager && !activation && p.added == 0 && p.weight.rows < kLongMatrix;
  if (rotates) {
    step_.defer_gemm(u);
  } else {
    step_.issue(launch_units_few, u);
  }
  return true;
}

// -- kernels that need more than one launch

bool GemmDispatch::split(const GemmParams& p, std::optional<int32_t> activation) {
  GemmSplitParams s = blank<GemmSplitParams>();
  s.gemm = p;
  s.gated = activation ? 1 : 0;
  s.activation = activation.value_or(0);
  if (!aligned_tokens(p.x) || !gemm_split_fits(s)) return false;
  if (p.weight.scales != nullptr) {
    const LibraryGemm::RoundedTokens rounded = library_.round_tokens(p);
    s.gemm.x.data = const_cast<void*>(rounded.data);
    s.gemm.x.stride_n = p.weight.cols;
    s.x_scales = rounded.scales;
  } else if (p.sum.out == nullptr) {
    s.gemm = with_factors(p);
  }
  step_.issue(launch_gemm_split, s);
  return true;
}

void GemmDispatch::tile(const GemmParams& p) {
  GroupedGemmParams t = blank<GroupedGemmParams>();
  t.out = p.out;
  t.x = p.x;
  t.weight = p.weight;
  t.bias = p.bias;
  t.groups = 1;
  step_.issue(launch_grouped_gemm, t);
}

bool GemmDispatch::fixed(const GemmParams& whole) {
  if (!gemm_fixed_fits(whole)) return false;
  for (int64_t first = 0; first < whole.x.n; first += kFixedTokens)
    step_.issue(launch_gemm_fixed, tokens_of(whole, first, std::min(kFixedTokens, whole.x.n - first)));
  library_.add_bias(whole);
  return true;
}

bool GemmDispatch::fixed_library(const GemmParams& p) {
  return gemm_fixed_fits(p) && library_.multiply_fixed(p);
}

bool GemmDispatch::fixed_fp8(const GemmParams& whole) {
  for (int64_t first = 0; first < whole.x.n; first += kFixedTokensFp8) {
    const GemmParams p = tokens_of(whole, first, std::min(kFixedTokensFp8, whole.x.n - first));
    if (!gemm_small_m_fits(p)) {
      SLUICE_CHECK_EQ(first, 0);
      return false;
    }
    step_.issue(launch_gemm_small_m, p);
  }
  return true;
}

void GemmDispatch::panels(const GemmParams& whole) {
  const int64_t stride = whole.weight.cols;  // of blocks and of fp8 a multiple of 32
  const int64_t step = std::min(rows_in_panel(2 * stride, 128), whole.weight.rows);
  void* panel = scratch_.at_least(static_cast<size_t>(step * stride * 2));
  for (int64_t row = 0; row < whole.weight.rows; row += step) {
    GemmParams p = rows_of(whole, row, std::min(step, whole.weight.rows - row));
    DequantizeParams d = blank<DequantizeParams>();
    d.source = p.weight;
    d.out = panel;
    d.stride = stride;
    step_.issue(launch_dequantize, d);
    p.weight.data = panel;
    p.weight.type = DType::BF16;
    p.weight.scales = nullptr;
    p.weight.row_bytes = stride * 2;
    gemm(p);
  }
}

bool GemmDispatch::panels_sm90(const GemmParams& gemm) {
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
  step_.issue(launch_entries, e);
  GroupedGemmSm90Params p = blank<GroupedGemmSm90Params>();
  p.out = gemm.out;
  p.x = memory;
  p.bias = gemm.bias;
  p.groups = 1;
  dequant_grouped_gemm(step_, p, gemm.weight, nullptr, memory + entries);
  return true;
}

Matrix GemmDispatch::unpacked(const Matrix& matrix) {
  UnpackUnitsParams p = blank<UnpackUnitsParams>();
  p.source = matrix;
  p.table = unit_table(matrix.type);
  p.out = unpacked_.at_least(static_cast<size_t>(bf16_bytes(matrix)));
  step_.issue(launch_unpack_units, p);
  Matrix plain = blank<Matrix>();
  plain.data = p.out;
  plain.rows = matrix.rows;
  plain.cols = matrix.cols;
  plain.row_bytes = matrix.cols * 2;
  plain.type = DType::BF16;
  return plain;
}

void GemmDispatch::units_to_bf16(const GemmParams& whole) {
  const int64_t step = std::max<int64_t>(128, kUnpackedBytes / (2 * whole.weight.cols) / 128 * 128);
  for (int64_t row = 0; row < whole.weight.rows; row += step) {
    GemmParams p = rows_of(whole, row, std::min(step, whole.weight.rows - row));
    p.weight = unpacked(p.weight);
    gemm(p);
  }
}

}  // namespace sluice::kernels::cuda
