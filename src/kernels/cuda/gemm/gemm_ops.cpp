// GEMMs: which kernel makes which one. gemv.cu, gemm_small_m_sm90.cu, gemm_swiglu_sm90.cu and gemm_grouped_generic.cu say what
// each is good for.
#include <algorithm>

#include "kernels/cuda/step/backend.h"

namespace sluice::kernels::cuda {

namespace {

// f32 tokens from which on decoding a packed matrix once is cheaper than in every tile: a panel has two parts, and of fewer
// there are not enough tiles of grouped_gemm_sm90.cu.
constexpr int64_t kPanelTokensF32 = 192;
constexpr int64_t kSplitTokens = 2048;  // f32 tokens of one GEMM
constexpr int64_t kSumTokens = 128;     // from here on a GEMM is added where it is made
// From here on gate and up in one on warpgroup instructions beat gemm_small_m_sm90.cu, where there are rows enough to keep the device
// busy; else cuBLASLt and a pass, from the second number on.
constexpr int64_t kSwigluTokens = 17, kSwigluTokensOfFewRows = 80;

GemmParams gemm_params(const TensorView& out, const TensorView& x, const Weight& weight) {
  GemmParams p = blank<GemmParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  SLUICE_CHECK_EQ(p.x.dim, weight.cols);
  SLUICE_CHECK_EQ(p.out.dim, weight.rows);
  SLUICE_CHECK_EQ(p.out.n, p.x.n);
  SLUICE_CHECK(out.dtype == x.dtype);
  return p;
}

CublasLtProblem cublaslt_problem(const GemmParams& p) {
  CublasLtProblem l = blank<CublasLtProblem>();
  l.out = p.out.data;
  l.x = p.x.data;
  l.weight = p.weight.data;
  l.n = p.x.n;
  l.rows = p.weight.rows;
  l.cols = p.weight.cols;
  l.out_stride = p.x.n == 1 ? p.weight.rows : p.out.stride_n;
  l.x_stride = p.x.n == 1 ? p.weight.cols : p.x.stride_n;
  l.weight_stride = p.weight.row_bytes / 2;
  l.out_type = DType::BF16;
  return l;
}

}  // namespace

void CudaBackendImpl::matmul(TensorView out, TensorView x, const Weight& weight) {
  GemmParams whole = gemm_params(out, x, weight);
  if (whole.x.n == 0) return;
  const DeviceWeight& stored = device_weight(weight);
  int64_t row = 0;
  for (const Matrix& matrix : stored.matrices) {
    GemmParams p = whole;
    p.weight = matrix;
    p.out.data = offset_columns(whole.out, row);
    p.out.dim = matrix.rows;
    p.bias = stored.bias != nullptr ? stored.bias + row : nullptr;
    gemm(p);
    row += matrix.rows;
  }
}

void CudaBackendImpl::gemm(const GemmParams& p) {
  if (p.weight.units != Units::None) return units_gemm(units_params(p, false, 0));
  if (p.x.type == DType::F32) return gemm_f32(p);
  if (deterministic_) return fixed_gemm(p);
  if (is_block(p.weight.type)) return gemm_of_blocks(p);
  const bool fp8 = p.weight.scales != nullptr;
  // gemm_small_m_sm90.cu has more of the weights on their way when the kernel in front ends: of one token, that is worth more than
  // the gemv's higher rate, but for matrices that are on their way as a whole in either and for very long ones.
  const bool ahead = p.x.n == 1 && !gemv_at_once(p) && p.weight.rows < kLongMatrix && gemm_small_m_fits(p);
  if (!ahead && gemv_fits(p)) return issue(launch_gemv, p);
  if (fp8 && gemm_small_m_fits(p)) return issue(launch_gemm_small_m, p);
  if (fp8 && cublaslt_gemm_fp8(p)) return;
  gemm_plain(p);
}

void CudaBackendImpl::gemm_of_blocks(const GemmParams& p) {
  const Route route =
      route_of(Stored::Blocks, p.x.n, [&](Route wanted) { return wanted != Route::Gemv || gemv_fits(p); });
  if (route == Route::Gemv) return issue(launch_gemv, p);
  if (route == Route::Tile) return gemm_tile(p);
  dequant_gemm(p);
}

void CudaBackendImpl::gemm_plain(const GemmParams& p) {
  // Where a matrix is as long as a vocabulary there are tiles enough for cuBLASLt to be the faster one.
  const bool long_matrix = p.weight.type == DType::BF16 && p.weight.rows >= kLongMatrix && p.x.n >= 4;
  if (long_matrix && cublaslt_gemm(p)) return;
  if (gemm_small_m_fits(p)) return issue(launch_gemm_small_m, p);
  if (p.weight.type == DType::BF16 && cublaslt_gemm(p)) return;
  gemm_tile(p);
}

// Tokens in f32: the gemv takes them as they are, the others as two bf16 numbers each.
void CudaBackendImpl::gemm_f32(const GemmParams& p) {
  if (!deterministic_ && p.x.n == 1 && gemv_fits(p)) return issue(launch_gemv, p);
  if (!deterministic_ && gemm_split(p)) return;
  if (!deterministic_ && gemv_fits(p)) return issue(launch_gemv, p);
  if (!deterministic_ && p.x.n >= kPanelTokensF32 && dequant_gemm_f32(p)) return;
  gemm_tile(p);
}

// The two numbers of every token as two tokens, some tokens after the others.
bool CudaBackendImpl::gemm_split(const GemmParams& whole) {
  if (whole.weight.type != DType::BF16) return false;
  const int64_t most = std::min(kSplitTokens, whole.x.n), rows = whole.weight.rows, cols = whole.weight.cols;
  const auto x_bytes = static_cast<size_t>((most * cols * 4 + 255) / 256 * 256);
  auto* const memory =
      static_cast<std::byte*>(scratch_.at_least(x_bytes + static_cast<size_t>(most * rows * 8)));
  CublasLtProblem l = cublaslt_problem(whole);
  l.x = memory;
  l.x_stride = cols;
  l.out = memory + x_bytes;
  l.out_stride = rows;
  l.out_type = DType::F32;
  if (!lt_fits(l)) return false;
  for (int64_t first = 0; first < whole.x.n; first += most) {
    SplitParams split = blank<SplitParams>();
    split.x = whole.x;
    split.x.n = std::min(most, whole.x.n - first);
    split.x.data = offset_columns(whole.x, first * whole.x.stride_n);
    split.out = memory;
    issue(launch_split, split);
    l.n = 2 * split.x.n;
    library_call(l);
    JoinParams join = blank<JoinParams>();
    join.out = whole.out;
    join.out.n = split.x.n;
    join.out.data = offset_columns(whole.out, first * whole.out.stride_n);
    join.parts = static_cast<const float*>(l.out);
    join.bias = whole.bias;
    issue(launch_join, join);
  }
  return true;
}

void CudaBackendImpl::gemm_tile(const GemmParams& p) {
  GroupedGemmParams t = blank<GroupedGemmParams>();
  t.out = p.out;
  t.x = p.x;
  t.weight = p.weight;
  t.bias = p.bias;
  t.groups = 1;
  issue(launch_grouped_gemm, t);
}

// Some tokens after the others through one kernel, whose sums have the same order for any number of them.
void CudaBackendImpl::fixed_gemm(const GemmParams& whole) {
  const int64_t most = whole.weight.scales != nullptr ? kFixedTokensFp8 : kFixedTokens;
  for (int64_t first = 0; first < whole.x.n; first += most) {
    GemmParams p = whole;
    p.x.n = p.out.n = std::min(most, whole.x.n - first);
    p.x.data = offset_columns(whole.x, first * whole.x.stride_n);
    p.out.data = offset_columns(whole.out, first * whole.out.stride_n);
    p.fixed_order = 1;
    if (!gemm_small_m_fits(p)) return gemm_tile(whole);
    issue(launch_gemm_small_m, p);
  }
}

void CudaBackendImpl::matmul_gated(TensorView out, TensorView wide, TensorView x, const Weight& gate_up,
                                   Activation activation) {
  const DeviceWeight& stored = device_weight(gate_up);
  GatedGemmParams g = blank<GatedGemmParams>();
  g.gemm = gemm_params(wide, x, gate_up);
  if (g.gemm.x.n == 0) return;
  g.gemm.weight = stored.matrices[0];
  g.gemm.out = view_of(out);
  g.gemm.bias = stored.bias;
  g.activation = static_cast<int32_t>(activation);
  SLUICE_CHECK_EQ(2 * g.gemm.out.dim, gate_up.rows);
  if (deterministic_ || g.gemm.x.type == DType::F32) {
    matmul(wide, x, gate_up);
    return gated(out, wide, activation);
  }
  if (stored.matrices.size() == 1 && g.gemm.weight.units != Units::None) {
    const UnitsGemmParams u = units_params(g.gemm, true, g.activation);
    const Route route = units_route(u);
    if (route == Route::Few) return issue(launch_units_few, u);
    if (route == Route::Many) return issue(launch_units_many, u);
    if (unpacked_fits(g.gemm.weight)) g.gemm.weight = unpacked(g.gemm.weight);
  }
  const bool plain = stored.matrices.size() == 1 && g.gemm.weight.type == DType::BF16;
  const bool fp8 = stored.matrices.size() == 1 && g.gemm.weight.scales != nullptr;
  if ((plain || fp8) && gemv_fits(g.gemm)) return issue(launch_gemv_gated, g);
  const bool silu = plain && activation == Activation::Silu && gemm_swiglu_fits(g.gemm);
  const int64_t least = silu && gemm_swiglu_busy(g.gemm) ? kSwigluTokens : kSwigluTokensOfFewRows;
  if (silu && g.gemm.x.n >= least) return issue(launch_gemm_swiglu, g.gemm);
  if ((plain || fp8) && gemm_small_m_fits(g.gemm)) return issue(launch_gemm_small_m_gated, g);
  matmul(wide, x, gate_up);
  gated(out, wide, activation);
}

// Of many tokens the norm's pass over x and the branch costs more than reading x in the GEMM's.
void CudaBackendImpl::matmul_add_rms_norm(TensorView out, const Residual& x, const DeferredMatmul& gemm,
                                          const RmsGain& gain) {
  const DeviceWeight& stored = device_weight(*gemm.weight);
  GemmParams p = gemm_params(x.sum, gemm.x, *gemm.weight);
  p.weight = stored.matrices[0];
  p.bias = stored.bias;
  const bool one = stored.matrices.size() == 1 && p.bias == nullptr && p.x.type == DType::BF16;
  const bool summed = one && !deterministic_ && p.x.n >= kSumTokens && x.b_scale == 1.0f;
  const bool panel = summed && p.weight.units != Units::None && unpacked_fits(p.weight) &&
                     units_route(units_params(p, false, 0)) == Route::Panel;
  if (panel) p.weight = unpacked(p.weight);
  const bool fits = summed && p.weight.type == DType::BF16;
  if (!fits || !library_sum(p)) {
    matmul(x.b, gemm.x, *gemm.weight);
    return add_rms_norm(out, x, gain);
  }
  rms_norm(out, x.sum, gain.gain, gain.eps);
}

bool CudaBackendImpl::library_sum(const GemmParams& p) {
  CublasLtProblem l = cublaslt_problem(p);
  l.add = 1;
  if (!lt_fits(l)) return false;
  library_call(l);
  return true;
}

bool CudaBackendImpl::cublaslt_gemm(const GemmParams& p) {
  const CublasLtProblem l = cublaslt_problem(p);
  if (!lt_fits(l)) return false;
  library_call(l);
  add_bias(p);
  return true;
}

void CudaBackendImpl::library_call(const CublasLtProblem& gemm) {
  if (mode_ != Mode::Issue) lt_->prepare(gemm, stream_);
  if (mode_ != Mode::Describe) return lt_->run(gemm, stream_);
  key_.add(&*lt_);
  key_.add_bytes(&gemm, sizeof gemm);
}

void CudaBackendImpl::add_bias(const GemmParams& p) {
  if (p.bias == nullptr) return;
  PointwiseParams b = blank<PointwiseParams>();
  b.operation = Pointwise::AddBias;
  b.out = b.a = p.out;
  b.bias = p.bias;
  pointwise(b);
}

// Scaled fp8 on both sides: the tokens are rounded first.
bool CudaBackendImpl::cublaslt_gemm_fp8(const GemmParams& p) {
  const int64_t n = p.x.n, cols = p.weight.cols;
  CublasLtProblem l = cublaslt_problem(p);
  l.weight = static_cast<const std::byte*>(p.weight.data) + kFp8Header;
  l.weight_stride = p.weight.row_bytes;
  l.x_stride = cols;
  l.weight_scales = p.weight.scales;
  if (!aligned_tokens(p.x)) return false;
  auto* const rounded = static_cast<std::byte*>(scratch_.at_least(static_cast<size_t>(n * (cols + 4))));
  l.x = rounded;
  l.x_scales = reinterpret_cast<const float*>(rounded + n * cols);
  if (!lt_fits(l)) return false;
  QuantizeTokensParams q = blank<QuantizeTokensParams>();
  q.x = p.x;
  q.out = rounded;
  q.scales = const_cast<float*>(l.x_scales);
  q.out_row_bytes = cols;
  issue(launch_quantize_tokens, q);
  library_call(l);
  add_bias(p);
  return true;
}

const CudaBackendImpl::PointerTable& CudaBackendImpl::pointer_table(std::span<const Weight> weights) {
  SLUICE_CHECK(!weights.empty());
  PointerTable& table = pointer_tables_[weights[0].packed.get()];
  if (table.owner.lock() == weights[0].packed) return table;
  const DeviceWeight& first = device_weight(weights[0]);
  const size_t count = weights.size(), kinds = first.matrices.size();
  std::vector<const void*> pointers;
  for (size_t m = 0; m < kinds; ++m) {
    for (const Weight& weight : weights) {
      const DeviceWeight& other = device_weight(weight);
      SLUICE_CHECK(other.matrices.size() == kinds && other.matrices[m].type == first.matrices[m].type &&
                   other.matrices[m].rows == first.matrices[m].rows &&
                   other.matrices[m].cols == first.matrices[m].cols);
      pointers.push_back(other.matrices[m].data);
    }
  }
  int64_t row = 0;
  for (size_t m = 0; m < kinds; ++m) {
    for (const Weight& weight : weights) {
      const float* bias = device_weight(weight).bias;
      SLUICE_CHECK((bias != nullptr) == (first.bias != nullptr));
      pointers.push_back(bias != nullptr ? bias + row : nullptr);
    }
    row += first.matrices[m].rows;
  }
  table = PointerTable{};
  table.owner = weights[0].packed;
  table.memory = allocate_device(pointers.size() * sizeof(void*));
  check(cudaMemcpyAsync(table.memory.get(), pointers.data(), pointers.size() * sizeof(void*),
                        cudaMemcpyHostToDevice, stream_),
        "upload of a pointer table");
  check(cudaStreamSynchronize(stream_), "upload of a pointer table");
  auto* const base = static_cast<const void**>(table.memory.get());
  for (size_t m = 0; m < kinds; ++m) {
    table.matrices.push_back(first.matrices[m]);
    table.matrices.back().data = nullptr;
    table.weights.push_back(base + m * count);
    table.biases.push_back(
        first.bias != nullptr ? reinterpret_cast<const float* const*>(base + (kinds + m) * count) : nullptr);
  }
  make_expert_maps(table, weights);
  return table;
}

void CudaBackendImpl::grouped_gemm(const GroupedGemmParams& common, const PointerTable& table) {
  int64_t row = 0;
  for (size_t m = 0; m < table.matrices.size(); ++m) {
    GroupedGemmParams p = common;
    p.weight = table.matrices[m];
    p.weights = table.weights[m];
    p.biases = table.biases[m];
    p.out.data = offset_columns(common.out, row);
    p.out.dim = p.weight.rows;
    issue(launch_grouped_gemm, p);
    row += p.weight.rows;
  }
}

void CudaBackendImpl::matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) {
  GroupedGemmParams p = blank<GroupedGemmParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  p.groups = static_cast<int64_t>(weights.size());
  SLUICE_CHECK(p.x.heads == p.groups && p.out.heads == p.groups);
  SLUICE_CHECK(p.x.dim == weights[0].cols && p.out.dim == weights[0].rows);
  grouped_gemm(p, pointer_table(weights));
}

}  // namespace sluice::kernels::cuda
