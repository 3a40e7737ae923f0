// rms_norm, layer_norm and add_rms_norm over the last dimension of x[n, heads, dim].
// A row is read once into registers: thread t of the row's `blockDim.x` holds elements 8 (v · blockDim.x + t)
// + 0..7. Rows of up to 256 elements take one warp, eight rows to a block. Moves each element in once and out
// once.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace sluice::kernels::cuda {
namespace {

// Sum over the threads of a row. Rows wider than a warp have a block to themselves.
__device__ __forceinline__ float row_sum(float v, float* shared) {
  v = warp_sum(v);
  if (blockDim.x == 32) return v;
  const int warps = blockDim.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float total = 0.0f;
  for (int w = 0; w < warps; ++w) total += shared[w];
  return total;
}

// Eight gains from element i on; one where there are none.
template <bool Vector>
__device__ __forceinline__ void load_gain(const float* gain, int64_t i, int64_t dim, float* out) {
  if (Vector && gain != nullptr && i < dim) {
    *reinterpret_cast<float4*>(out) = __ldg(reinterpret_cast<const float4*>(gain + i));
    *reinterpret_cast<float4*>(out + 4) = __ldg(reinterpret_cast<const float4*>(gain + i) + 1);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = gain != nullptr && i + j < dim ? gain[i + j] : 1.0f;
}

template <int Pieces, bool Vector>
__global__ void __launch_bounds__(1024) norm_kernel(const NormParams p) {
  __shared__ float shared[32];
  // Gains were there before the step began: they are fetched while the kernel in front still runs.
  float gain[Pieces][8];
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    const int64_t i = (int64_t{v} * blockDim.x + threadIdx.x) * 8;
    load_gain<Vector>(p.gain, i, p.x.dim, gain[v]);
  }
  allow_dependents();
  wait_for_producer();
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool live = row < p.x.n * p.x.heads;
  const int64_t token = live ? row / p.x.heads : 0, head = live ? row % p.x.heads : 0;
  bf16* x = static_cast<bf16*>(p.x.data) + token * p.x.stride_n + head * p.x.stride_h;
  bf16* out = static_cast<bf16*>(p.out.data) + token * p.out.stride_n + head * p.out.stride_h;
  const bf16* add = static_cast<const bf16*>(p.add.data);
  const int64_t dim = p.x.dim;

  float f[Pieces][8];
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    const int64_t i = (int64_t{v} * blockDim.x + threadIdx.x) * 8;
    const int64_t count = live ? dim - i : 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) f[v][j] = 0.0f;
    if (count <= 0) continue;
    load8<Vector>(x + i, count, f[v]);
    if (add != nullptr) {
      float b[8];
      load8<Vector>(add + token * p.add.stride_n + head * p.add.stride_h + i, count, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) f[v][j] = __bfloat162float(__float2bfloat16(f[v][j] + p.scale * b[j]));
      store8<Vector>(x + i, count, f[v]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += p.kind == NormKind::Rms ? f[v][j] * f[v][j] : f[v][j];
  }

  const float scale_of_dim = 1.0f / static_cast<float>(dim);
  float mean = 0.0f;
  float square = row_sum(sum, shared) * scale_of_dim;
  if (p.kind == NormKind::Layer) {
    mean = square;
    float deviation = 0.0f;
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      const int64_t i = (int64_t{v} * blockDim.x + threadIdx.x) * 8;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (i + j < dim) deviation += (f[v][j] - mean) * (f[v][j] - mean);
    }
    square = row_sum(deviation, shared) * scale_of_dim;
  }
  const float factor = rsqrtf(square + p.eps);

#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    const int64_t i = (int64_t{v} * blockDim.x + threadIdx.x) * 8;
    const int64_t count = live ? dim - i : 0;
    if (count <= 0) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j >= count) continue;
      const float bias = p.bias != nullptr ? p.bias[i + j] : 0.0f;
      f[v][j] = (f[v][j] - mean) * factor * gain[v][j] + bias;
    }
    store8<Vector>(out + i, count, f[v]);
  }
}

bool vectors(const View& v) {
  return v.data == nullptr ||
         (aligned16(v.data) && v.dim % 8 == 0 && v.stride_n % 8 == 0 && v.stride_h % 8 == 0);
}

template <int Pieces>
void launch_pieces(const NormParams& p, const Grid& grid, Stream stream) {
  if (vectors(p.out) && vectors(p.x) && vectors(p.add) && aligned16(p.gain)) {
    launch("norm", norm_kernel<Pieces, true>, grid, stream, p);
  } else {
    launch("norm", norm_kernel<Pieces, false>, grid, stream, p);
  }
}

}  // namespace

void launch_norm(const NormParams& p, Stream stream) {
  const int64_t rows = p.x.n * p.x.heads;
  if (rows == 0) return;
  const int64_t wanted = ceil_div(p.x.dim, 8);
  if (wanted <= 32) {
    const Grid grid{dim3(static_cast<unsigned>(ceil_div(rows, 8))), dim3(32, 8)};
    return launch_pieces<1>(p, grid, stream);
  }
  const int64_t threads = wanted <= 1024 ? ceil_div(wanted, 32) * 32 : 1024;
  const Grid grid{dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(threads))};
  const int64_t pieces = ceil_div(wanted, threads);
  if (pieces == 1) return launch_pieces<1>(p, grid, stream);
  if (pieces <= 4) return launch_pieces<4>(p, grid, stream);
  check_launch(pieces <= 8 ? cudaSuccess : cudaErrorInvalidValue, "norm of more than 65536 elements");
  launch_pieces<8>(p, grid, stream);
}

}  // namespace sluice::kernels::cuda
