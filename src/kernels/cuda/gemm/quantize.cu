// Plain rows to fp8 (e4m3) with one scale each: weights once, when they are loaded, and the tokens of a large GEMM.
//
// A block per row: 256 threads find the largest magnitude of eight elements at a time, then round all of them, read
// again from the L1 or L2. Bytes moved: a row in, one byte per element out.
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float largest_of_block(float value, float* shared) {
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float largest = 0.0f;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) largest = fmaxf(largest, shared[w]);
  return largest;
}

// Read(k, f) gives eight elements of the row. Returns the scale.
template <class Read>
__device__ __forceinline__ float quantize_row(int64_t cols, uint8_t* out, const Read& read) {
  __shared__ float shared[kThreads / 32];
  float largest = 0.0f;
  for (int64_t k = threadIdx.x * 8; k < cols; k += kThreads * 8) {
    float f[8];
    read(k, f);
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = isfinite(f[j]) ? fmaxf(largest, fabsf(f[j])) : INFINITY;
  }
  largest = largest_of_block(largest, shared);
  const float scale = largest > 0.0f ? largest / kFp8Largest : 1.0f, factor = 1.0f / scale;
  for (int64_t k = threadIdx.x * 8; k < cols; k += kThreads * 8) {
    float f[8];
    read(k, f);
    *reinterpret_cast<uint2*>(out + k) = round8(f, factor);
  }
  return scale;
}

template <class Type>
__global__ void __launch_bounds__(kThreads) rows_kernel(const QuantizeRowsParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t row = blockIdx.x;
  const uint8_t* source = static_cast<const uint8_t*>(p.source.data) + row * p.source.row_bytes;
  uint8_t* out = static_cast<uint8_t*>(p.out) + row * p.out_row_bytes;
  const float scale = quantize_row(p.source.cols, out + kFp8Header,
                                   [&](int64_t k, float* f) { Type::dequantize8(source, k, f); });
  if (threadIdx.x < kFp8Header / 4)
    reinterpret_cast<float*>(out)[threadIdx.x] = threadIdx.x == 0 ? scale : 0.0f;
  if (threadIdx.x == 0) p.scales[row] = scale;
}

__global__ void __launch_bounds__(kThreads) tokens_kernel(const QuantizeTokensParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t token = blockIdx.x;
  const bf16* x = static_cast<const bf16*>(p.x.data) + token * p.x.stride_n;
  const float scale = quantize_row(p.x.dim, static_cast<uint8_t*>(p.out) + token * p.out_row_bytes,
                                   [&](int64_t k, float* f) { unpack8(load_activation(x + k), f); });
  if (threadIdx.x == 0) p.scales[token] = scale;
}

// The results of the gate stay in registers between the two passes.
__global__ void __launch_bounds__(kThreads) gated_tokens_kernel(const QuantizeTokensParams p) {
  constexpr int kPieces = kMostGatedColumns / (8 * kThreads);
  __shared__ float shared[kThreads / 32];
  allow_dependents();
  wait_for_producer();
  const int64_t token = blockIdx.x, cols = p.x.dim;
  const bf16* x = static_cast<const bf16*>(p.x.data) + token * p.x.stride_n;
  const bf16* up = static_cast<const bf16*>(p.up.data) + token * p.up.stride_n;
  uint4 made[kPieces];
  float largest = 0.0f;
#pragma unroll
  for (int v = 0; v < kPieces; ++v) {
    const int64_t k = (int64_t{v} * kThreads + threadIdx.x) * 8;
    if (k >= cols) break;
    float g[8], u[8];
    unpack8(load_activation(x + k), g);
    unpack8(load_activation(up + k), u);
    gate8(g, u, p.activation);
    made[v] = pack8(g);
    unpack8(made[v], g);
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = isfinite(g[j]) ? fmaxf(largest, fabsf(g[j])) : INFINITY;
  }
  largest = largest_of_block(largest, shared);
  const float scale = largest > 0.0f ? largest / kFp8Largest : 1.0f, factor = 1.0f / scale;
  uint8_t* out = static_cast<uint8_t*>(p.out) + token * p.out_row_bytes;
#pragma unroll
  for (int v = 0; v < kPieces; ++v) {
    const int64_t k = (int64_t{v} * kThreads + threadIdx.x) * 8;
    if (k >= cols) break;
    float f[8];
    unpack8(made[v], f);
    *reinterpret_cast<uint2*>(out + k) = round8(f, factor);
  }
  if (threadIdx.x == 0) p.scales[token] = scale;
}

}  // namespace

void launch_quantize_rows(const QuantizeRowsParams& p, Stream stream) {
  if (p.source.rows == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(p.source.rows)), dim3(kThreads)};
  const bool known = visit_stored(
      p.source.type, [&](auto type) { launch("quantize", rows_kernel<decltype(type)>, grid, stream, p); });
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "quantize of this type");
}

void launch_quantize_tokens(const QuantizeTokensParams& p, Stream stream) {
  if (p.x.n == 0) return;
  launch("quantize", p.up.data != nullptr ? gated_tokens_kernel : tokens_kernel,
         {dim3(static_cast<unsigned>(p.x.n)), dim3(kThreads)}, stream, p);
}

}  // namespace sluice::kernels::cuda
