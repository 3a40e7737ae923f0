// sum = sum_scale * (sum + scale * rms_norm(branch)), out = rms_norm(sum) for rows of bf16: what lies between the two norms
// of a residual stream whose branches are normed (Gemma, OLMo). A block has a row; thread t holds elements 8 (v * blockDim.x + t) + 0..7
// of it. The branch is read once, the stream read and written once, and the normed branch is not rounded. Sums are made in
// one order for any number of rows.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int64_t kMaxPieces = 4;

// Of the squares that the threads of the block have.
__device__ __forceinline__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float total = 0.0f;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) total += shared[w];
  return total;
}

__device__ __forceinline__ void load_gain(const float* gain, int64_t i, float (&out)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = 1.0f;
  if (gain == nullptr) return;
  *reinterpret_cast<float4*>(out) = __ldg(reinterpret_cast<const float4*>(gain + i));
  *reinterpret_cast<float4*>(out + 4) = __ldg(reinterpret_cast<const float4*>(gain + i) + 1);
}

template <int Pieces>
__global__ void __launch_bounds__(kMaxThreads) add_normed_kernel(const AddNormedParams p) {
  __shared__ float of_branch[kMaxThreads / 32], of_sum[kMaxThreads / 32];
  const int64_t dim = p.sum.dim, row = blockIdx.x;
  const auto at = [&](int piece) { return (int64_t{piece} * blockDim.x + threadIdx.x) * 8; };
  allow_dependents();
  wait_for_producer();
  bf16* sum = static_cast<bf16*>(p.sum.data) + row * p.sum.stride_n;
  const bf16* branch = static_cast<const bf16*>(p.branch.data) + row * p.branch.stride_n;
  uint4 x[Pieces], b[Pieces];
  float square = 0.0f;
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    x[v] = b[v] = make_uint4(0, 0, 0, 0);
    if (at(v) >= dim) continue;
    b[v] = load_activation(branch + at(v));
    x[v] = load_activation(sum + at(v));
    float f[8];
    unpack8(b[v], f);
#pragma unroll
    for (int j = 0; j < 8; ++j) square = fmaf(f[j], f[j], square);
  }
  const float of_dim = 1.0f / static_cast<float>(dim);
  const float branch_factor = p.scale * rsqrtf(block_sum(square, of_branch) * of_dim + p.branch_eps);
  square = 0.0f;
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    if (at(v) >= dim) continue;
    float f[8], g[8], s[8];
    unpack8(x[v], s);
    unpack8(b[v], f);
    load_gain(p.branch_gain, at(v), g);
#pragma unroll
    for (int j = 0; j < 8; ++j) s[j] = p.sum_scale * fmaf(f[j] * branch_factor, g[j], s[j]);
    x[v] = pack8(s);
    *reinterpret_cast<uint4*>(sum + at(v)) = x[v];
    unpack8(x[v], s);
#pragma unroll
    for (int j = 0; j < 8; ++j) square = fmaf(s[j], s[j], square);
  }
  if (p.out.data == nullptr) return;
  const float factor = rsqrtf(block_sum(square, of_sum) * of_dim + p.eps);
  bf16* out = static_cast<bf16*>(p.out.data) + row * p.out.stride_n;
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    if (at(v) >= dim) continue;
    float s[8], g[8];
    unpack8(x[v], s);
    load_gain(p.gain, at(v), g);
#pragma unroll
    for (int j = 0; j < 8; ++j) s[j] *= factor * g[j];
    *reinterpret_cast<uint4*>(out + at(v)) = pack8(s);
  }
}

bool whole_pieces(const View& v) {
  return v.type == DType::BF16 && v.heads == 1 && aligned16(v.data) && v.dim % 8 == 0 && v.stride_n % 8 == 0;
}

}  // namespace

bool adds_normed(const AddNormedParams& p) {
  return whole_pieces(p.sum) && whole_pieces(p.branch) && (p.out.data == nullptr || whole_pieces(p.out)) &&
         p.branch.n == p.sum.n && p.sum.dim <= kMaxPieces * kMaxThreads * 8 && aligned16(p.gain) &&
         aligned16(p.branch_gain);
}

void launch_add_normed(const AddNormedParams& p, Stream stream) {
  if (p.sum.n == 0) return;
  const int64_t pieces = ceil_div(p.sum.dim, int64_t{8} * kMaxThreads);
  const int64_t threads = ceil_div(ceil_div(p.sum.dim, 8 * pieces), 32) * 32;
  const Grid grid{dim3(static_cast<unsigned>(p.sum.n)), dim3(static_cast<unsigned>(threads))};
  if (pieces == 1) return launch("add normed", add_normed_kernel<1>, grid, stream, p);
  if (pieces == 2) return launch("add normed", add_normed_kernel<2>, grid, stream, p);
  launch("add normed", add_normed_kernel<4>, grid, stream, p);
}

}  // namespace sluice::kernels::cuda
