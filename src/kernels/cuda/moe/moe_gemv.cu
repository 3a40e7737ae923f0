// The feed-forward of a mixture for few tokens, with matrices of any type: active[pair, i] = gate(W_gate[i] · x[token],
// W_up[i] · x[token]) for every (token, slot), then out[token, r] = Σ over its slots of weight · (W_down[r] · active[pair]).
//
// A warp makes one element of the first, and an expert's part of four of the second: a lane decodes eight elements of a row at a time and multiplies them with as many of
// the token's, which come from the L1. Nothing is sorted, and no token waits for another; matrices that several tokens
// chose are read for each of them, from the L2 where it holds them. Bytes: those matrices, once for each pair.
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8, kDownRows = 4;

__device__ __forceinline__ const uint8_t* row_of(const void* const* matrices, int expert, int64_t row,
                                                 int64_t row_bytes) {
  return static_cast<const uint8_t*>(matrices[expert]) + row * row_bytes;
}

template <class T>
__device__ __forceinline__ float dot8(const float (&weights)[8], const T* x) {
  float v[8], sum = 0.0f;
  load8<true>(x, 8, v);
#pragma unroll
  for (int j = 0; j < 8; ++j) sum += weights[j] * v[j];
  return sum;
}

// grid: (rows of active, pairs)
template <class Type, class T, bool Gated>
__global__ void __launch_bounds__(kWarps * 32) few_up_kernel(const FewExpertsParams p) {
  wait_for_producer();
  allow_dependents();  // not before: the kernel behind reads the choice before this one has ended
  const int lane = threadIdx.x % 32;
  const int64_t inner = p.down.cols, cols = p.up.cols;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, pair = blockIdx.y;
  if (row >= inner) return;
  const int64_t token = pair / p.used, slot = pair % p.used;
  const int expert = p.ids[token * p.ids_stride + slot];
  const uint8_t* first = row_of(p.up_matrices, expert, row, p.up.row_bytes);
  const uint8_t* second = first + inner * p.up.row_bytes;
  const T* x = static_cast<const T*>(p.x.data) + token * p.x.stride_n;
  float sums[2] = {};
#pragma unroll 4
  for (int64_t k = lane * 8; k < cols; k += 256) {
    float w[8];
    Type::dequantize8(first, k, w);
    sums[0] += dot8(w, x + k);
    if constexpr (Gated) {
      Type::dequantize8(second, k, w);
      sums[1] += dot8(w, x + k);
    }
  }
  const float factor = p.weigh_inputs != 0 ? p.weights[token * p.weights_stride + slot] : 1.0f;
#pragma unroll
  for (float& sum : sums) sum = warp_sum(sum) * factor;
  if (lane != 0) return;
  if (p.up_biases != nullptr) {
    sums[0] += p.up_biases[expert][row];
    if constexpr (Gated) sums[1] += p.up_biases[expert][inner + row];
  }
  static_cast<T*>(p.active)[pair * inner + row] =
      narrow<T>(Gated ? gate(sums[0], sums[1], p.activation, p.limit) : activate(sums[0], p.activation));
}

// Rows that a warp is to multiply, to the L2.
__device__ __forceinline__ void fetch_rows(const uint8_t* rows, int64_t bytes) {
  constexpr int kLine = 128;
  for (int64_t at = threadIdx.x % 32 * kLine; at < bytes; at += 32 * kLine)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(rows + at));
}

// A warp takes one slot (every eighth) of some rows, so that all of their pieces are on their way at once; the warps' sums
// are added in their order. What was chosen was known before the kernel in front, so that the rows are on their way while that
// one ends. grid: (rows of out, tokens)
template <class Type, class T>
__global__ void __launch_bounds__(kWarps * 32) few_down_kernel(const FewExpertsParams p) {
  __shared__ float parts[kWarps][kDownRows];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = int64_t{blockIdx.x} * kDownRows, token = blockIdx.y, inner = p.down.cols;
  const int rows = static_cast<int>(min(int64_t{kDownRows}, p.down.rows - first));
  for (int slot = warp; slot < p.used; slot += kWarps) {
    const int expert = __ldcg(p.ids + token * p.ids_stride + slot);
    fetch_rows(row_of(p.down_matrices, expert, first, p.down.row_bytes), rows * p.down.row_bytes);
  }
  allow_dependents();
  wait_for_producer();
  float totals[kDownRows] = {};
  for (int slot = warp; slot < p.used; slot += kWarps) {
    const int expert = p.ids[token * p.ids_stride + slot];
    const float weight = p.weigh_inputs != 0 ? 1.0f : p.weights[token * p.weights_stride + slot];
    const uint8_t* weights = row_of(p.down_matrices, expert, first, p.down.row_bytes);
    const T* x = static_cast<const T*>(p.active) + (token * p.used + slot) * inner;
    float sums[kDownRows] = {};
#pragma unroll 4
    for (int64_t k = lane * 8; k < inner; k += 256) {
      float v[8];
      load8<true>(x + k, 8, v);
#pragma unroll
      for (int r = 0; r < kDownRows; ++r) {
        if (r >= rows) break;
        float w[8];
        Type::dequantize8(weights + r * p.down.row_bytes, k, w);
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[r] += w[j] * v[j];
      }
    }
#pragma unroll
    for (int r = 0; r < kDownRows; ++r) {
      if (lane == 0 && r < rows && p.down_biases != nullptr) sums[r] += p.down_biases[expert][first + r];
      totals[r] += weight * sums[r];
    }
  }
#pragma unroll
  for (int r = 0; r < kDownRows; ++r) {
    const float total = warp_sum(totals[r]);
    if (lane == 0) parts[warp][r] = total;
  }
  __syncthreads();
  if (threadIdx.x >= rows) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += parts[w][threadIdx.x];
  static_cast<T*>(p.out.data)[token * p.out.stride_n + first + threadIdx.x] = narrow<T>(sum);
}

Grid rows_by(int64_t rows, int64_t others) {
  return {dim3(static_cast<unsigned>(ceil_div(rows, kWarps)), static_cast<unsigned>(others)),
          dim3(kWarps * 32)};
}

}  // namespace

bool few_experts_fit(const FewExpertsParams& p) {
  return aligned_tokens(p.x) && p.down.cols % 8 == 0;
}

void launch_few_experts(const FewExpertsParams& p, Stream stream) {
  const int64_t pairs = p.x.n * p.used;
  visit_activations(p.x.type, [&](auto element) {
    using T = decltype(element);
    const bool up = visit_matrix(p.up, [&](auto type) {
      using Type = decltype(type);
      launch("few experts, up", p.gated != 0 ? few_up_kernel<Type, T, true> : few_up_kernel<Type, T, false>,
             rows_by(p.down.cols, pairs), stream, p);
    });
    const bool down = visit_matrix(p.down, [&](auto type) {
      const Grid grid{
          dim3(static_cast<unsigned>(ceil_div(p.down.rows, kDownRows)), static_cast<unsigned>(p.x.n)),
          dim3(kWarps * 32)};
      launch("few experts, down", few_down_kernel<decltype(type), T>, grid, stream, p);
    });
    check_launch(up && down ? cudaSuccess : cudaErrorInvalidValue, "experts of this type");
  });
}

}  // namespace sluice::kernels::cuda
