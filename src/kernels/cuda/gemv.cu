// Products of few tokens, out[n, rows] = x[n, cols] · Wᵀ + bias, n ≤ 8.
//
// bf16, one token: a warp per weight row, eight 16-byte loads in flight; weights are on their way before the
// kernel in front has ended, x goes to shared memory after. Reads the weights once: 53.7 us for 28672 x 4096
// on an H200, 4.38 TB/s (H200 read ceiling for one launch of that size: 4.41). Packed types, one to eight
// tokens: a warp per weight row, a lane decodes eight elements and multiplies them with every token's, which
// come from the L1; so do f32 tokens with any type.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kUnroll = 8;
constexpr int64_t kMaxShared = 96 * 1024;

// The first kUnroll * 32 pieces of 16 bytes of each of a warp's rows; Whole: the row is a multiple of that.
template <int Rows, int Unroll, bool Whole>
struct RowReader {
  const uint4* rows[Rows];
  uint4 held[Rows][Unroll];
  int pieces;

  __device__ __forceinline__ void load(int r, int u, int piece) {
    held[r][u] = Whole || piece < pieces ? load_weight(rows[r] + piece) : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void load_first(int lane) {
#pragma unroll
    for (int u = 0; u < Unroll; ++u)
#pragma unroll
      for (int r = 0; r < Rows; ++r) load(r, u, u * 32 + lane);
  }
  // Sums of products with x, in the lanes' shares.
  __device__ __forceinline__ void multiply(const uint4* x, int lane, float (&sums)[Rows]) {
    for (int base = 0; base < pieces; base += Unroll * 32) {
      const bool more = base + Unroll * 32 < pieces;
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        const int piece = base + u * 32 + lane;
        const uint4 v = Whole || piece < pieces ? x[piece] : make_uint4(0, 0, 0, 0);
        float b[8];
        unpack8(v, b);
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          float a[8];
          unpack8(held[r][u], a);
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[r] += a[j] * b[j];
          if (more) load(r, u, piece + Unroll * 32);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) sums[r] = warp_sum(sums[r]);
  }
};

__device__ __forceinline__ const uint4* row_of(const Matrix& matrix, int64_t row) {
  return reinterpret_cast<const uint4*>(static_cast<const char*>(matrix.data) + row * matrix.row_bytes);
}

__device__ __forceinline__ void share_x(uint4* shared, const View& x, int pieces) {
  for (int i = threadIdx.x; i < pieces; i += kWarps * 32)
    shared[i] = load_activation(static_cast<const bf16*>(x.data) + i * 8);
  __syncthreads();
}

template <bool Whole>
__global__ void __launch_bounds__(kWarps * 32) plain_kernel(const ProductParams p) {
  extern __shared__ uint4 x_shared[];
  const int lane = threadIdx.x % 32;
  const int64_t wanted = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t row = wanted < p.weight.rows ? wanted : p.weight.rows - 1;
  RowReader<1, kUnroll, Whole> reader;
  reader.pieces = static_cast<int>(p.weight.cols / 8);
  reader.rows[0] = row_of(p.weight, row);
  reader.load_first(lane);
  allow_dependents();
  wait_for_producer();
  share_x(x_shared, p.x, reader.pieces);
  float sums[1] = {};
  reader.multiply(x_shared, lane, sums);
  if (lane != 0) return;
  static_cast<bf16*>(p.out.data)[row] = __float2bfloat16(sums[0] + (p.bias != nullptr ? p.bias[row] : 0.0f));
}

// A warp makes one element of the result: a gate row and the up row that belongs to it.
template <bool Whole>
__global__ void __launch_bounds__(kWarps * 32) gated_kernel(const GatedProductParams g) {
  extern __shared__ uint4 x_shared[];
  const ProductParams& p = g.product;
  const int lane = threadIdx.x % 32;
  const int64_t inner = p.weight.rows / 2, wanted = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t row = wanted < inner ? wanted : inner - 1;
  RowReader<2, kUnroll / 2, Whole> reader;
  reader.pieces = static_cast<int>(p.weight.cols / 8);
  reader.rows[0] = row_of(p.weight, row);
  reader.rows[1] = row_of(p.weight, inner + row);
  reader.load_first(lane);
  allow_dependents();
  wait_for_producer();
  share_x(x_shared, p.x, reader.pieces);
  float sums[2] = {};
  reader.multiply(x_shared, lane, sums);
  if (lane != 0) return;
  if (p.bias != nullptr) sums[0] += p.bias[row], sums[1] += p.bias[inner + row];
  static_cast<bf16*>(p.out.data)[row] = __float2bfloat16(gate(sums[0], sums[1], g.activation));
}

template <class Type, class T, int Tokens>
__global__ void __launch_bounds__(kWarps * 32) packed_kernel(const ProductParams p) {
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.weight.rows) return;
  const uint8_t* weights = static_cast<const uint8_t*>(p.weight.data) + row * p.weight.row_bytes;
  const T* x = static_cast<const T*>(p.x.data);
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
      load8<true>(x + t * p.x.stride_n + k, 8, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) acc[t] += w[j] * v[j];
    }
  }
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
    const float total = warp_sum(acc[t]);
    if (lane == 0 && t < p.x.n)
      static_cast<T*>(p.out.data)[t * p.out.stride_n + row] =
          narrow<T>(total + (p.bias != nullptr ? p.bias[row] : 0.0f));
  }
}

}  // namespace

static bool is_plain(const ProductParams& p) {
  return p.weight.type == DType::BF16 && p.x.type == DType::BF16;
}

bool gemv_fits(const ProductParams& p) {
  const bool aligned = aligned16(p.x.data) && p.x.stride_n % 8 == 0 && p.weight.cols % 8 == 0;
  if (is_plain(p)) {
    return aligned && p.x.n == 1 && p.weight.row_bytes % 16 == 0 && p.weight.cols * 2 <= kMaxShared;
  }
  return aligned && p.x.n <= 8;
}

namespace {

// `whole` where the columns are a multiple of what a warp holds, `cut` otherwise.
template <class Params>
void launch_shared(void (*whole)(Params), void (*cut)(Params), const Params& p, const ProductParams& product,
                   int64_t results, Stream stream) {
  const auto shared = static_cast<size_t>(product.weight.cols * 2);
  const auto kernel = product.weight.cols % (kUnroll * 32 * 8) == 0 ? whole : cut;
  if (shared > 48 * 1024) {
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxShared),
                 "gemv of this width");
  }
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(results, kWarps))), dim3(kWarps * 32), shared};
  launch("gemv", kernel, grid, stream, p);
}

}  // namespace

void launch_gemv_gated(const GatedProductParams& p, Stream stream) {
  launch_shared<GatedProductParams>(gated_kernel<true>, gated_kernel<false>, p, p.product,
                                    p.product.weight.rows / 2, stream);
}

void launch_gemv(const ProductParams& p, Stream stream) {
  if (is_plain(p))
    return launch_shared<ProductParams>(plain_kernel<true>, plain_kernel<false>, p, p, p.weight.rows, stream);
  const dim3 blocks(static_cast<unsigned>(ceil_div(p.weight.rows, kWarps)));
  const bool known = visit_matrix(p.weight, [&](auto type) {
    using Type = decltype(type);
    visit_activations(p.x.type, [&](auto element) {
      using T = decltype(element);
      const Grid grid{blocks, dim3(kWarps * 32)};
      if (p.x.n == 1) return launch("gemv", packed_kernel<Type, T, 1>, grid, stream, p);
      if (p.x.n <= 4) return launch("gemv", packed_kernel<Type, T, 4>, grid, stream, p);
      launch("gemv", packed_kernel<Type, T, 8>, grid, stream, p);
    });
  });
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "gemv of this type");
}

}  // namespace sluice::kernels::cuda
