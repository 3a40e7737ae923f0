// f32 results of bf16 tokens and a bf16 matrix of few rows: out[t, r] = x[t] · W[r] + bias[r]. A warp makes one row's results
// for four tokens: a lane multiplies pieces of eight columns, and the lanes' sums are added at the end, in the same order
// for any number of tokens. Bytes: the matrix and the tokens, most of them from the L2.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8, kTokens = 4;
constexpr int kTogether = 4;  // pieces of a row that are on their way at once

// grid: (rows, tokens)
template <int Tokens>
__global__ void __launch_bounds__(kWarps * 32) gemm_wide_kernel(const GemmParams p) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, first = int64_t{blockIdx.y} * Tokens;
  allow_dependents();
  wait_for_producer();
  if (row >= p.weight.rows) return;
  const uint8_t* weights = static_cast<const uint8_t*>(p.weight.data) + row * p.weight.row_bytes;
  const bf16* x[Tokens];
#pragma unroll
  for (int t = 0; t < Tokens; ++t)
    x[t] = static_cast<const bf16*>(p.x.data) + min(first + t, p.x.n - 1) * p.x.stride_n;
  float sums[Tokens] = {};
  for (int64_t start = lane * 8; start < p.weight.cols; start += 256 * kTogether) {
    uint4 w[kTogether], v[kTogether][Tokens];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t k = start + 256 * i;
      const bool there = k < p.weight.cols;
      w[i] = there ? load_weight(weights + 2 * k) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int t = 0; t < Tokens; ++t) v[i][t] = there ? load_activation(x[t] + k) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      float a[8];
      unpack8(w[i], a);
#pragma unroll
      for (int t = 0; t < Tokens; ++t) {
        float b[8];
        unpack8(v[i][t], b);
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[t] += a[j] * b[j];
      }
    }
  }
  const float bias = p.bias != nullptr ? p.bias[row] : 0.0f;
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0 && first + t < p.x.n)
      static_cast<float*>(p.out.data)[(first + t) * p.out.stride_n + row] = sum + bias;
  }
}

}  // namespace

bool gemm_wide_fits(const GemmParams& p) {
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16 && p.out.type == DType::F32 &&
         aligned_tokens(p.x) && p.weight.row_bytes % 16 == 0 && aligned16(p.weight.data);
}

void launch_gemm_wide(const GemmParams& p, Stream stream) {
  const auto grid_of = [&](int tokens) {
    return Grid{dim3(static_cast<unsigned>(ceil_div(p.weight.rows, kWarps)),
                     static_cast<unsigned>(ceil_div(p.x.n, tokens))),
                dim3(kWarps * 32)};
  };
  if (p.x.n == 1) return launch("gemm_wide", gemm_wide_kernel<1>, grid_of(1), stream, p);
  launch("gemm_wide", gemm_wide_kernel<kTokens>, grid_of(kTokens), stream, p);
}

}  // namespace sluice::kernels::cuda
