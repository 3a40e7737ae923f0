// f32 results of bf16 tokens and a bf16 matrix of few rows: out[t, r] = x[t] · W[r] + bias[r]. A warp makes one row's results
// for four tokens: a lane multiplies pieces of eight columns, and the lanes' sums are added at the end, in the same order
// for any number of tokens. Of one token, a warp has its row on its way before the kernel in front has ended, and norms x
// for itself where that is asked for. Bytes: the matrix and the tokens, most of them from the L2.
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

constexpr int kOnePieces = 8;  // of a row, to a lane
constexpr int kOneColumns = kOnePieces * 256;

// One token with up to kOneColumns columns, normed where p.norm says so.
__global__ void __launch_bounds__(kWarps * 32) gemm_wide_one_kernel(const GemmParams p) {
  __shared__ float gains[kOneColumns];
  const int lane = threadIdx.x % 32;
  const int64_t wanted = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32,
                row = min(wanted, p.weight.rows - 1);
  const uint8_t* weights = static_cast<const uint8_t*>(p.weight.data) + row * p.weight.row_bytes;
  const auto there = [&](int i) { return i * 256 + lane * 8 < p.weight.cols; };
  uint4 w[kOnePieces], v[kOnePieces];
#pragma unroll
  for (int i = 0; i < kOnePieces; ++i)
    w[i] = there(i) ? load_weight(weights + 2 * (i * 256 + lane * 8)) : make_uint4(0, 0, 0, 0);
  if (p.norm.out != nullptr)
    for (int i = threadIdx.x; i < p.weight.cols; i += kWarps * 32)
      gains[i] = p.norm.gain != nullptr ? __ldg(p.norm.gain + i) : 1.0f;
  __syncthreads();
  allow_dependents();
  wait_for_producer();
  const bf16* x = static_cast<const bf16*>(p.x.data) + lane * 8;
  float squares = 0.0f, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kOnePieces; ++i)
    v[i] = there(i) ? load_activation(x + i * 256) : make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kOnePieces; ++i) {
    float b[8];
    unpack8(v[i], b);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += b[j] * b[j];
  }
  const float factor = rsqrtf(warp_sum(squares) / static_cast<float>(p.weight.cols) + p.norm.eps);
#pragma unroll
  for (int i = 0; i < kOnePieces; ++i) {
    if (!there(i)) continue;
    float a[8], b[8];
    unpack8(v[i], b);
    if (p.norm.out != nullptr) {
#pragma unroll
      for (int j = 0; j < 8; ++j) b[j] *= factor * gains[i * 256 + lane * 8 + j];
      const uint4 normed = pack8(b);
      if (blockIdx.x == 0 && threadIdx.x < 32)
        *reinterpret_cast<uint4*>(static_cast<bf16*>(p.norm.out) + i * 256 + lane * 8) = normed;
      unpack8(normed, b);
    }
    unpack8(w[i], a);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += a[j] * b[j];
  }
  sum = warp_sum(sum);
  if (lane == 0 && wanted < p.weight.rows)
    static_cast<float*>(p.out.data)[row] = sum + (p.bias != nullptr ? p.bias[row] : 0.0f);
}

}  // namespace

bool gemm_wide_norms(const GemmParams& p) {
  return p.x.n == 1 && p.weight.cols <= kOneColumns && p.weight.cols == p.x.dim && gemm_wide_fits(p);
}

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
  if (p.x.n == 1 && p.weight.cols <= kOneColumns)
    return launch("gemm_wide", gemm_wide_one_kernel, grid_of(1), stream, p);
  if (p.x.n == 1) return launch("gemm_wide", gemm_wide_kernel<1>, grid_of(1), stream, p);
  launch("gemm_wide", gemm_wide_kernel<kTokens>, grid_of(kTokens), stream, p);
}

}  // namespace sluice::kernels::cuda
