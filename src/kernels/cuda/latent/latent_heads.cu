// GEMMs of few tokens with a matrix for each head: out[t, h, r] = x[t, h] · W_h[r], by which queries go into the latent space and
// results out of it.
//
// A block makes 16 rows of a head for eight tokens with mma m16n8k16, as gemm_wide.cu does; its warps share the columns in chunks
// of 32. Its part of the matrix is on its way before the kernel in front has ended.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/latent/latent_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTileRows = 16, kTokens = 8, kChunk = 32;

// grid: (tiles of rows, heads). Warps · Each chunks.
template <int Warps, int Each>
__global__ void __launch_bounds__(Warps * 32) latent_heads_kernel(const LatentHeadsParams p) {
  __shared__ float parts[Warps][kTokens][kTileRows + 1];
  const int head = static_cast<int>(blockIdx.y);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint8_t* rows = static_cast<const uint8_t*>(p.weights[head]) +
                        (int64_t{blockIdx.x} * kTileRows + g) * p.shape.row_bytes;
  uint4 a[Each][2];
#pragma unroll
  for (int i = 0; i < Each; ++i) {
    const int column = ((i * Warps + warp) * kChunk + t * 8) * 2;
    a[i][0] = load_weight(rows + column);
    a[i][1] = load_weight(rows + 8 * p.shape.row_bytes + column);
  }
  allow_dependents();
  wait_for_producer();
  const bf16* x = static_cast<const bf16*>(p.x.data) + min(int64_t{g}, p.x.n - 1) * p.x.stride_n +
                  head * p.x.stride_h + warp * kChunk + t * 8;
  uint4 b[Each];
#pragma unroll
  for (int i = 0; i < Each; ++i) b[i] = load_activation(x + i * Warps * kChunk);
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < Each; ++i) {
    mma_bf16(sums, a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b[i].x, b[i].y);
    mma_bf16(sums, a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b[i].z, b[i].w);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) parts[warp][2 * t + j % 2][g + j / 2 * 8] = sums[j];
  __syncthreads();
  for (int i = threadIdx.x; i < kTokens * kTileRows / 2; i += Warps * 32) {
    const int token = i / (kTileRows / 2), row = i % (kTileRows / 2) * 2;
    if (token >= p.x.n) continue;
    float sum[2] = {};
#pragma unroll
    for (int w = 0; w < Warps; ++w) sum[0] += parts[w][token][row], sum[1] += parts[w][token][row + 1];
    bf16* out = static_cast<bf16*>(p.out.data) + token * p.out.stride_n + head * p.out.stride_h;
    *reinterpret_cast<uint32_t*>(out + blockIdx.x * kTileRows + row) = pack_pair(sum[0], sum[1]);
  }
}

}  // namespace

bool latent_heads_fit(const LatentHeadsParams& p) {
  return p.x.n <= kTokens && p.shape.type == DType::BF16 && p.shape.rows % kTileRows == 0 &&
         p.shape.row_bytes % 16 == 0 && (p.shape.cols == 128 || p.shape.cols == 512);
}

void launch_latent_heads(const LatentHeadsParams& p, Stream stream) {
  const dim3 blocks(static_cast<unsigned>(p.shape.rows / kTileRows), static_cast<unsigned>(p.x.heads));
  if (p.shape.cols == 128)
    return launch("latent heads", latent_heads_kernel<4, 1>, Grid{blocks, dim3(128)}, stream, p);
  launch("latent heads", latent_heads_kernel<8, 2>, Grid{blocks, dim3(256)}, stream, p);
}

}  // namespace sluice::kernels::cuda
