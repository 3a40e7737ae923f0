// Products of few tokens, out[n, rows] = x[n, cols] · Wᵀ + bias, n ≤ 8.
//
// bf16, one token: a warp per weight row, eight 16-byte loads in flight; weights are on their way before the
// kernel in front has ended, x goes to shared memory after. Reads the weights once: 53.7 us for 28672 x 4096
// on an H200, 4.38 TB/s (H200 read ceiling for one launch of that size: 4.41). Packed types, one to eight
// tokens: a warp per weight row, a lane decodes eight elements and multiplies them with every token's, which
// come from the L1.
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kUnroll = 8;
constexpr int64_t kMaxShared = 96 * 1024;

__global__ void __launch_bounds__(kWarps * 32) plain_kernel(const ProductParams p) {
  extern __shared__ uint4 x_shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t pieces = p.weight.cols / 8;  // 16-byte pieces of a row
  const uint4* weights =
      reinterpret_cast<const uint4*>(static_cast<const char*>(p.weight.data) + row * p.weight.row_bytes);
  const bool live = row < p.weight.rows;
  const uint4 zero = make_uint4(0, 0, 0, 0);
  uint4 w[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = u * 32 + lane;
    w[u] = live && i < pieces ? load_weight(weights + i) : zero;
  }
  allow_dependents();
  wait_for_producer();
  const bf16* x = static_cast<const bf16*>(p.x.data);
  for (int64_t i = threadIdx.x; i < pieces; i += kWarps * 32) x_shared[i] = load_activation(x + i * 8);
  __syncthreads();
  if (!live) return;
  float acc = 0.0f;
  for (int64_t base = 0; base < pieces; base += kUnroll * 32) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t i = base + u * 32 + lane;
      const uint4 v = i < pieces ? x_shared[i] : zero;
      float a[8], b[8];
      unpack8(w[u], a);
      unpack8(v, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) acc += a[j] * b[j];
      const int64_t next = i + kUnroll * 32;
      w[u] = next < pieces ? load_weight(weights + next) : zero;
    }
  }
  acc = warp_sum(acc);
  if (lane == 0) {
    if (p.bias != nullptr) acc += p.bias[row];
    static_cast<bf16*>(p.out.data)[row] = __float2bfloat16(acc);
  }
}

template <class Type, int Tokens>
__global__ void __launch_bounds__(kWarps * 32) packed_kernel(const ProductParams p) {
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.weight.rows) return;
  const uint8_t* weights = static_cast<const uint8_t*>(p.weight.data) + row * p.weight.row_bytes;
  const bf16* x = static_cast<const bf16*>(p.x.data);
  const int64_t cols = p.weight.cols;
  float acc[Tokens];
#pragma unroll
  for (int t = 0; t < Tokens; ++t) acc[t] = 0.0f;
#pragma unroll 2
  for (int64_t k = lane * 8; k < cols; k += 256) {
    float w[8];
    Type::decode8(weights, k, w);
#pragma unroll
    for (int t = 0; t < Tokens; ++t) {
      if (t >= p.x.n) break;
      float v[8];
      unpack8(load_activation(x + t * p.x.stride_n + k), v);
#pragma unroll
      for (int j = 0; j < 8; ++j) acc[t] += w[j] * v[j];
    }
  }
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
    const float total = warp_sum(acc[t]);
    if (lane == 0 && t < p.x.n)
      static_cast<bf16*>(p.out.data)[t * p.out.stride_n + row] =
          __float2bfloat16(total + (p.bias != nullptr ? p.bias[row] : 0.0f));
  }
}

}  // namespace

bool gemv_fits(const ProductParams& p) {
  const bool aligned = aligned16(p.x.data) && p.x.stride_n % 8 == 0 && p.weight.cols % 8 == 0;
  if (p.weight.type == DType::BF16) {
    return aligned && p.x.n == 1 && p.weight.row_bytes % 16 == 0 && p.weight.cols * 2 <= kMaxShared;
  }
  return aligned && p.x.n <= 8;
}

void launch_gemv(const ProductParams& p, Stream stream) {
  const dim3 blocks(static_cast<unsigned>(ceil_div(p.weight.rows, kWarps)));
  if (p.weight.type == DType::BF16) {
    const auto shared = static_cast<size_t>(p.weight.cols * 2);
    if (shared > 48 * 1024) {
      check_launch(
          cudaFuncSetAttribute(plain_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxShared),
          "gemv of this width");
    }
    return launch("gemv", plain_kernel, {blocks, dim3(kWarps * 32), shared}, stream, p);
  }
  const bool known = visit_packed(p.weight.type, [&](auto type) {
    using Type = decltype(type);
    const Grid grid{blocks, dim3(kWarps * 32)};
    if (p.x.n == 1) return launch("gemv", packed_kernel<Type, 1>, grid, stream, p);
    if (p.x.n <= 4) return launch("gemv", packed_kernel<Type, 4>, grid, stream, p);
    launch("gemv", packed_kernel<Type, 8>, grid, stream, p);
  });
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "gemv of this type");
}

}  // namespace sluice::kernels::cuda
