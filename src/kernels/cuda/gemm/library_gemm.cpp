#include "kernels/cuda/gemm/library_gemm.h"

#include <algorithm>

#include "kernels/cuda/common/views.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kSplitTokens = 2048;  // f32 tokens of one GEMM

CublasLtProblem problem_of(const GemmParams& p) {
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
  l.out_type = p.out.type;
  return l;
}

}  // namespace

GemmParams tokens_of(const GemmParams& whole, int64_t first, int64_t count) {
  GemmParams p = whole;
  p.x.n = p.out.n = count;
  p.x.data = offset_columns(whole.x, first * whole.x.stride_n);
  p.out.data = offset_columns(whole.out, first * whole.out.stride_n);
  return p;
}

LibraryGemm::LibraryGemm(StepContext& step, const CudaOptions& options)
    : step_(step), lt_(options.workspace_bytes, options.search) {}

// False where no algorithm does what the problem asks for.
bool LibraryGemm::call(const CublasLtProblem& problem) {
  step_.flush();
  if (step_.mode != Mode::Issue) lt_.prepare(problem, step_.stream);
  if (!lt_.has_algorithm(problem)) return false;
  if (step_.mode != Mode::Describe) {
    lt_.run(problem, step_.stream);
  } else {
    step_.key.add(&lt_);
    step_.key.add_bytes(&problem, sizeof problem);
  }
  return true;
}

void LibraryGemm::add_bias(const GemmParams& p) {
  if (p.bias == nullptr) return;
  PointwiseParams b = blank<PointwiseParams>();
  b.operation = Pointwise::AddBias;
  b.out = b.a = p.out;
  b.bias = p.bias;
  step_.issue(launch_pointwise, b);
}

bool LibraryGemm::multiply(const GemmParams& p) {
  const CublasLtProblem l = problem_of(p);
  if (!lt_fits(l)) return false;
  call(l);
  add_bias(p);
  return true;
}

bool LibraryGemm::multiply_fixed(const GemmParams& p) {
  CublasLtProblem l = problem_of(p);
  l.fixed_order = 1;
  if (!lt_fits(l) || !call(l)) return false;
  add_bias(p);
  return true;
}

bool LibraryGemm::add(const GemmParams& p) {
  CublasLtProblem l = problem_of(p);
  l.add = 1;
  if (!lt_fits(l)) return false;
  call(l);
  return true;
}

// Scaled fp8 on both sides: the tokens are rounded first.
bool LibraryGemm::multiply_fp8(const GemmParams& p) {
  const int64_t n = p.x.n, cols = p.weight.cols;
  CublasLtProblem l = problem_of(p);
  l.weight = static_cast<const std::byte*>(p.weight.data) + kFp8Header;
  l.weight_stride = p.weight.row_bytes;
  l.x_stride = cols;
  l.weight_scales = p.weight.scales;
  if (!aligned_tokens(p.x)) return false;
  l.x = scratch_.at_least(static_cast<size_t>(n * (cols + 4)));
  if (!lt_fits(l)) return false;
  const RoundedTokens rounded = round_tokens(p);
  l.x = rounded.data;
  l.x_scales = rounded.scales;
  call(l);
  add_bias(p);
  return true;
}

LibraryGemm::RoundedTokens LibraryGemm::round_tokens(const GemmParams& p) {
  const int64_t n = p.x.n, cols = p.weight.cols;
  auto* const rounded = static_cast<std::byte*>(scratch_.at_least(static_cast<size_t>(n * (cols + 4))));
  auto* const scales = reinterpret_cast<float*>(rounded + n * cols);
  if (std::optional<NormParams> norm = step_.take_many(p.x)) {
    norm->rounded = rounded;
    norm->rounded_scales = scales;
    step_.issue(launch_norm, *norm);
    return {rounded, scales};
  }
  QuantizeTokensParams q = blank<QuantizeTokensParams>();
  q.x = p.x;
  if (cols <= kMostGatedColumns) {
    if (const std::optional<PointwiseParams> gate = step_.take_gate(p.x)) {
      q.x = gate->a;
      q.up = gate->b;
      q.activation = gate->activation;
    }
  }
  q.out = rounded;
  q.scales = scales;
  q.out_row_bytes = cols;
  step_.issue(launch_quantize_tokens, q);
  return {rounded, q.scales};
}

// The two numbers of every token as two tokens, some tokens after the others.
bool LibraryGemm::multiply_split(const GemmParams& whole) {
  const int64_t most = std::min(kSplitTokens, whole.x.n), rows = whole.weight.rows, cols = whole.weight.cols;
  const auto x_bytes = static_cast<size_t>((most * cols * 4 + 255) / 256 * 256);
  auto* const memory =
      static_cast<std::byte*>(scratch_.at_least(x_bytes + static_cast<size_t>(most * rows * 8)));
  CublasLtProblem l = problem_of(whole);
  l.x = memory;
  l.x_stride = cols;
  l.out = memory + x_bytes;
  l.out_stride = rows;
  l.out_type = DType::F32;
  if (!lt_fits(l)) return false;
  for (int64_t first = 0; first < whole.x.n; first += most) {
    const GemmParams p = tokens_of(whole, first, std::min(most, whole.x.n - first));
    SplitParams split = blank<SplitParams>();
    split.x = p.x;
    split.out = memory;
    step_.issue(launch_split, split);
    l.n = 2 * p.x.n;
    call(l);
    JoinParams join = blank<JoinParams>();
    join.out = p.out;
    join.parts = static_cast<const float*>(l.out);
    join.bias = whole.bias;
    step_.issue(launch_join, join);
  }
  return true;
}

}  // namespace sluice::kernels::cuda
