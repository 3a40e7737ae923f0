// f32 results of bf16 tokens and a bf16 matrix of few rows: out[t, r] = x[t] · W[r] + bias[r]. Bytes: the matrix and the
// tokens, most of them from the L2.
//
// One token, which it norms for itself where that is asked for: a warp makes one row's result, and has its row on its way before
// the kernel in front has ended.
//
// Any number of tokens: a block makes 16 rows by 8, 16 or 32 tokens with mma m16n8k16. Its warps take every eighth chunk of 32
// columns each; a lane loads eight columns of a row as they lie, since a sum does not ask which column of a chunk is which of
// the instruction's as long as both operands agree. The warps' sums are added first to last, so that a result has the same
// bits for any number of tokens.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8, kTileRows = 16, kChunk = 32;
constexpr int kTogether = 4;  // chunks of a warp that are on their way at once

// grid: (tiles of rows, tiles of 8 · Eights tokens)
template <int Eights>
__global__ void __launch_bounds__(kWarps * 32) gemm_wide_kernel(const GemmParams p) {
  __shared__ float parts[kWarps][8 * Eights][kTileRows + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int64_t first_row = int64_t{blockIdx.x} * kTileRows, first = int64_t{blockIdx.y} * (8 * Eights);
  const int64_t cols = p.weight.cols, last_row = p.weight.rows - 1;
  const auto row_at = [&](int64_t row) {
    return static_cast<const uint8_t*>(p.weight.data) + min(row, last_row) * p.weight.row_bytes;
  };
  const uint8_t *const upper = row_at(first_row + g), *const lower = row_at(first_row + g + 8);
  const bf16* x[Eights];
#pragma unroll
  for (int e = 0; e < Eights; ++e)
    x[e] = static_cast<const bf16*>(p.x.data) + min(first + 8 * e + g, p.x.n - 1) * p.x.stride_n;
  const auto column = [&](int64_t chunk, int i) { return (chunk + i * kWarps) * kChunk + t * 8; };
  const uint4 nothing = make_uint4(0, 0, 0, 0);
  uint4 a[kTogether][2];
  const auto load_rows = [&](int64_t chunk) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t k = column(chunk, i);
      a[i][0] = k < cols ? load_weight(upper + 2 * k) : nothing;
      a[i][1] = k < cols ? load_weight(lower + 2 * k) : nothing;
    }
  };
  load_rows(warp);
  allow_dependents();
  wait_for_producer();
  float sums[Eights][4] = {};
  for (int64_t chunk = warp; chunk * kChunk < cols; chunk += kWarps * kTogether) {
    uint4 b[kTogether][Eights];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t k = column(chunk, i);
#pragma unroll
      for (int e = 0; e < Eights; ++e) b[i][e] = k < cols ? load_activation(x[e] + k) : nothing;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int e = 0; e < Eights; ++e) {
        mma_bf16(sums[e], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b[i][e].x, b[i][e].y);
        mma_bf16(sums[e], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b[i][e].z, b[i][e].w);
      }
    }
    load_rows(chunk + kWarps * kTogether);
  }
#pragma unroll
  for (int e = 0; e < Eights; ++e) {
#pragma unroll
    for (int j = 0; j < 4; ++j) parts[warp][8 * e + 2 * t + j % 2][g + j / 2 * 8] = sums[e][j];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 8 * Eights * kTileRows; i += kWarps * 32) {
    const int64_t token = first + i / kTileRows, row = first_row + i % kTileRows;
    if (token >= p.x.n || row > last_row) continue;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += parts[w][i / kTileRows][i % kTileRows];
    static_cast<float*>(p.out.data)[token * p.out.stride_n + row] =
        sum + (p.bias != nullptr ? p.bias[row] : 0.0f);
  }
}

constexpr int kOnePieces = 8;  // of a row, to a lane
constexpr int kOneColumns = kOnePieces * 256;

// One token with up to kOneColumns columns, normed where p.norm says so.
__global__ void __launch_bounds__(kWarps * 32) gemm_wide_one_kernel(const GemmParams p) {
  __shared__ float4 gains[kOneColumns / 4];  // of each piece the first fours of all lanes, then the second
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
    for (int i = threadIdx.x; i * 4 < p.weight.cols; i += kWarps * 32)
      gains[i / 64 * 64 + i % 2 * 32 + i % 64 / 2] =
          p.norm.gain != nullptr ? __ldg(reinterpret_cast<const float4*>(p.norm.gain) + i)
                                 : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
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
      for (int half = 0; half < 2; ++half) {
        const float4 gain = gains[i * 64 + half * 32 + lane];
        b[4 * half] *= factor * gain.x, b[4 * half + 1] *= factor * gain.y;
        b[4 * half + 2] *= factor * gain.z, b[4 * half + 3] *= factor * gain.w;
      }
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

bool gemm_wide_one_fits(const GemmParams& p) {
  return p.x.n == 1 && p.weight.cols <= kOneColumns && p.weight.cols == p.x.dim && gemm_wide_fits(p);
}

bool gemm_wide_fits(const GemmParams& p) {
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16 && p.out.type == DType::F32 &&
         aligned_tokens(p.x) && p.weight.row_bytes % 16 == 0 && aligned16(p.weight.data);
}

void launch_gemm_wide(const GemmParams& p, Stream stream) {
  const auto tiles = [&](int tokens) {
    return Grid{dim3(static_cast<unsigned>(ceil_div(p.weight.rows, kTileRows)),
                     static_cast<unsigned>(ceil_div(p.x.n, tokens))),
                dim3(kWarps * 32)};
  };
  if (p.x.n <= 8) return launch("gemm_wide", gemm_wide_kernel<1>, tiles(8), stream, p);
  if (p.x.n <= 16) return launch("gemm_wide", gemm_wide_kernel<2>, tiles(16), stream, p);
  launch("gemm_wide", gemm_wide_kernel<4>, tiles(32), stream, p);
}

void launch_gemm_wide_one(const GemmParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.weight.rows, kWarps))), dim3(kWarps * 32)};
  launch("gemm_wide", gemm_wide_one_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda
