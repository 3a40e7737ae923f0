// Which of cuBLASLt's algorithms sum in the order of gemm_fixed_sm90.cu: those that do not split the columns, and whose
// results are the same bits. Tokens for that are random, of magnitudes from 2^-8 to 2^7, so that sums in another order
// are rounded to others.
#include <algorithm>
#include <array>
#include <random>

#include "kernels/cuda/gemm/cublaslt_gemm.h"

namespace sluice::kernels::cuda {

namespace {

bool splits_columns(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 0;
  uint32_t scheme = 0;
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts,
                                       &written);
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                       sizeof scheme, &written);
  return (parts != 0 && parts != 1) || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

// [n, stride] of bf16; rows repeat after some hundred.
DeviceBuffer random_tokens(int64_t n, int64_t stride, cudaStream_t stream) {
  constexpr size_t kPattern = 1000003;
  std::mt19937 random(20);
  std::vector<uint16_t> pattern(kPattern);
  for (uint16_t& value : pattern) {
    const auto bits = static_cast<uint32_t>(random());
    value = static_cast<uint16_t>((bits & 0x807fu) | (119u + (bits >> 16 & 15u)) << 7);
  }
  const size_t count = static_cast<size_t>(n * stride);
  DeviceBuffer tokens = allocate_device(count * 2);
  auto* const first = static_cast<uint16_t*>(tokens.get());
  for (size_t at = 0; at < count; at += kPattern)
    check(cudaMemcpyAsync(first + at, pattern.data(), std::min(kPattern, count - at) * 2,
                          cudaMemcpyHostToDevice, stream),
          "copy");
  check(cudaStreamSynchronize(stream), "copy");
  return tokens;
}

View tokens_view(void* data, int64_t n, int64_t dim, int64_t stride) {
  View view = blank<View>();
  view.data = data;
  view.n = n;
  view.heads = 1;
  view.dim = view.stride_h = dim;
  view.stride_n = stride;
  view.type = DType::BF16;
  return view;
}

// Some tokens of a problem with tokens `x`: the first, some in the middle and the last.
class FixedSamples {
 public:
  FixedSamples(const CublasLtProblem& p, void* x, cudaStream_t stream)
      : count_(std::min(p.n, kFixedTokens)), starts_{0, (p.n - count_) / 2, p.n - count_} {
    const DeviceBuffer out = allocate_device(static_cast<size_t>(p.n * p.out_stride * 2));
    for (const int64_t start : starts_) {
      GemmParams g = blank<GemmParams>();
      g.x = tokens_view(static_cast<uint16_t*>(x) + start * p.x_stride, count_, p.cols, p.x_stride);
      g.out =
          tokens_view(static_cast<uint16_t*>(out.get()) + start * p.out_stride, count_, p.rows, p.out_stride);
      g.weight.data = p.weight;
      g.weight.rows = p.rows;
      g.weight.cols = p.cols;
      g.weight.row_bytes = p.weight_stride * 2;
      g.weight.type = DType::BF16;
      launch_gemm_fixed(g, stream);
    }
    wanted_ = read(p, out.get(), stream);
  }
  bool match(const CublasLtProblem& p, const void* out, cudaStream_t stream) const {
    return read(p, out, stream) == wanted_;
  }

 private:
  std::vector<uint16_t> read(const CublasLtProblem& p, const void* out, cudaStream_t stream) const {
    const auto width = static_cast<size_t>(p.rows * 2), pitch = static_cast<size_t>(p.out_stride * 2);
    const auto rows = static_cast<size_t>(p.rows), count = static_cast<size_t>(count_);
    std::vector<uint16_t> result(starts_.size() * count * rows);
    for (size_t i = 0; i < starts_.size(); ++i)
      check(cudaMemcpy2DAsync(result.data() + i * count * rows, width,
                              static_cast<const uint16_t*>(out) + starts_[i] * p.out_stride, pitch, width,
                              count, cudaMemcpyDeviceToHost, stream),
            "copy");
    check(cudaStreamSynchronize(stream), "comparing GEMMs");
    return result;
  }

  int64_t count_;
  std::array<int64_t, 3> starts_;
  std::vector<uint16_t> wanted_;
};

}  // namespace

std::optional<CublasLtGemm::Timed> CublasLtGemm::first_fixed(const std::vector<Timed>& candidates,
                                                             const CublasLtProblem& problem, const Plan& plan,
                                                             cudaStream_t stream) {
  constexpr int kTries = 12;
  const DeviceBuffer x = random_tokens(problem.n, problem.x_stride, stream);
  const DeviceBuffer out = allocate_cleared(static_cast<size_t>(problem.n * problem.out_stride * 2));
  CublasLtProblem p = problem;
  p.x = x.get();
  const FixedSamples samples(p, x.get(), stream);
  int tries = 0;
  for (const Timed& candidate : candidates) {
    if (splits_columns(candidate.algorithm)) continue;
    if (++tries > kTries) break;
    if (call(p, plan, candidate.algorithm, out.get(), stream) != CUBLAS_STATUS_SUCCESS) continue;
    if (samples.match(p, out.get(), stream)) return candidate;
  }
  return std::nullopt;
}

}  // namespace sluice::kernels::cuda
