// rms_norm, layer_norm and add_rms_norm over the last dimension of x[n, heads, dim].
// A row is read once into registers: thread t of the row's `blockDim.x` holds elements 8 (v · blockDim.x + t)
// + 0..7. Rows of up to 256 elements take one warp, eight rows to a block; where there are many long rows, blocks walk
// over them. Moves each element in once and out once, and out as fp8 besides where a GEMM is to have that.
#include <type_traits>

#include "kernels/cuda/gemm/gemm_params.h"
#include "kernels/cuda/moe/mix.cuh"
#include "kernels/cuda/step/token_params.h"

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

// Largest magnitude of a row, INFINITY where one is not finite. Rows have a block to themselves.
__device__ __forceinline__ float row_largest(float v, float* shared) {
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float largest = 0.0f;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) largest = fmaxf(largest, shared[w]);
  return largest;
}

// A normed row to fp8: eight elements of each piece, of which the first is element at(piece); zero behind the end.
template <int Pieces, class At>
__device__ __forceinline__ void round_row(const NormParams& p, int64_t row, const uint4 (&made)[Pieces],
                                          float* shared, const At& at) {
  float largest = 0.0f;
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    float f[8];
    unpack8(made[v], f);
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = isfinite(f[j]) ? fmaxf(largest, fabsf(f[j])) : INFINITY;
  }
  largest = row_largest(largest, shared);
  const float scale = largest > 0.0f ? largest / kFp8Largest : 1.0f, factor = 1.0f / scale;
#pragma unroll
  for (int v = 0; v < Pieces; ++v) {
    if (at(v) >= p.x.dim) continue;
    float f[8];
    unpack8(made[v], f);
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.rounded) + row * p.x.dim + at(v)) = round8(f, factor);
  }
  if (threadIdx.x == 0) p.rounded_scales[row] = scale;
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

// Eight elements of the row that is added.
template <class T, bool Vector, bool Mixed>
__device__ __forceinline__ void load_added(const NormParams& p, int64_t token, int64_t head, int64_t i,
                                           float (&b)[8]) {
  T* add = static_cast<T*>(p.add.data) + token * p.add.stride_n + head * p.add.stride_h + i;
  if constexpr (Mixed) {
    mix8<T, Vector>(p.mixed, token, i, b);
    store8<Vector>(add, p.x.dim - i, b);
#pragma unroll
    for (float& value : b) value = widen(narrow<T>(value));
  } else {
    load8<Vector>(add, p.x.dim - i, b);
  }
}

template <class T, int Pieces, bool Vector, bool Mixed = false>
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
  T* x = static_cast<T*>(p.x.data) + token * p.x.stride_n + head * p.x.stride_h;
  T* out = static_cast<T*>(p.out.data) + token * p.out.stride_n + head * p.out.stride_h;
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
    if (p.add.data != nullptr) {
      float b[8];
      load_added<T, Vector, Mixed>(p, token, head, i, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) f[v][j] = widen(narrow<T>(f[v][j] + p.scale * b[j]));
      store8<Vector>(x + i, count, f[v]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = p.kind == NormKind::Rms ? fmaf(f[v][j], f[v][j], sum) : sum + f[v][j];
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
  if constexpr (Vector && std::is_same_v<T, bf16> && !Mixed && Pieces == 1) {
    if (p.rounded == nullptr) return;
    const auto at = [&](int v) { return (int64_t{v} * blockDim.x + threadIdx.x) * 8; };
    uint4 made[Pieces];
#pragma unroll
    for (int v = 0; v < Pieces; ++v) made[v] = at(v) < dim ? pack8(f[v]) : make_uint4(0, 0, 0, 0);
    round_row<Pieces>(p, row, made, shared, at);
  }
}

constexpr int kRowThreads = 256;

// Many rows: a block walks over them, the next row on its way while this one is summed. Vectors of bf16, rms only.
template <int Pieces, bool Rounded>
__global__ void __launch_bounds__(kRowThreads) rows_kernel(const NormParams p) {
  __shared__ float shared[2][kRowThreads / 32];
  [[maybe_unused]] __shared__ float maxima[kRowThreads / 32];
  allow_dependents();
  wait_for_producer();
  const int64_t rows = p.x.n * p.x.heads, dim = p.x.dim;
  const auto place = [&](const View& v, int64_t row) {
    return static_cast<bf16*>(v.data) + row / p.x.heads * v.stride_n + row % p.x.heads * v.stride_h;
  };
  const auto at = [&](int piece) { return (int64_t{piece} * kRowThreads + threadIdx.x) * 8; };
  uint4 x[Pieces], add[Pieces], next[Pieces];
  const auto load = [&](int64_t row, uint4(&to)[Pieces]) {
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      to[v] = add[v] = make_uint4(0, 0, 0, 0);
      if (row >= rows || at(v) >= dim) continue;
      to[v] = load_activation(place(p.x, row) + at(v));
      if (p.add.data != nullptr) add[v] = load_activation(place(p.add, row) + at(v));
    }
  };
  load(blockIdx.x, x);
  int turn = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      float f[8], b[8];
      unpack8(x[v], f);
      unpack8(add[v], b);
#pragma unroll
      for (int j = 0; j < 8; ++j) f[j] += p.scale * b[j];
      x[v] = pack8(f);
      unpack8(x[v], f);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += f[j] * f[j];
      if (p.add.data != nullptr && at(v) < dim) *reinterpret_cast<uint4*>(place(p.x, row) + at(v)) = x[v];
    }
    load(row + gridDim.x, next);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) shared[turn][threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kRowThreads / 32; ++w) total += shared[turn][w];
    const float factor = rsqrtf(total / static_cast<float>(dim) + p.eps);
    uint4 made[Pieces];
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      made[v] = make_uint4(0, 0, 0, 0);
      if (at(v) >= dim) continue;
      float f[8], gain[8];
      unpack8(x[v], f);
      load_gain<true>(p.gain, at(v), dim, gain);
#pragma unroll
      for (int j = 0; j < 8; ++j) f[j] = f[j] * factor * gain[j];
      made[v] = pack8(f);
      *reinterpret_cast<uint4*>(place(p.out, row) + at(v)) = made[v];
    }
    if constexpr (Rounded) round_row<Pieces>(p, row, made, maxima, at);
#pragma unroll
    for (int v = 0; v < Pieces; ++v) x[v] = next[v];
  }
}

// The same for rows of 256 · Pieces elements: a warp has a row.
template <int Pieces>
__global__ void __launch_bounds__(kRowThreads, 2) warp_rows_kernel(const NormParams p) {
  const int lane = threadIdx.x % 32;
  float gain[Pieces][8];
#pragma unroll
  for (int v = 0; v < Pieces; ++v) load_gain<true>(p.gain, (v * 32 + lane) * 8, p.x.dim, gain[v]);
  allow_dependents();
  wait_for_producer();
  const int64_t rows = p.x.n, step = int64_t{gridDim.x} * (kRowThreads / 32);
  const auto place = [&](const View& v, int64_t row) {
    return static_cast<bf16*>(v.data) + row * v.stride_n + lane * 8;
  };
  uint4 x[Pieces], add[Pieces];
  const auto load = [&](int64_t row, uint4(&to)[Pieces]) {
    if (row >= rows) return;
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      to[v] = load_activation(place(p.x, row) + v * 256);
      if (p.add.data != nullptr) add[v] = load_activation(place(p.add, row) + v * 256);
    }
  };
  int64_t row = int64_t{blockIdx.x} * (kRowThreads / 32) + threadIdx.x / 32;
  load(row, x);
  for (; row < rows; row += step) {
    float f[Pieces][8], sum = 0.0f;
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
      unpack8(x[v], f[v]);
      if (p.add.data != nullptr) {
        float b[8];
        unpack8(add[v], b);
#pragma unroll
        for (int j = 0; j < 8; ++j) f[v][j] = widen(narrow<bf16>(f[v][j] + p.scale * b[j]));
        *reinterpret_cast<uint4*>(place(p.x, row) + v * 256) = pack8(f[v]);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += f[v][j] * f[v][j];
    }
    load(row + step, x);
    const float factor = rsqrtf(warp_sum(sum) / static_cast<float>(p.x.dim) + p.eps);
#pragma unroll
    for (int v = 0; v < Pieces; ++v) {
#pragma unroll
      for (int j = 0; j < 8; ++j) f[v][j] *= factor * gain[v][j];
      *reinterpret_cast<uint4*>(place(p.out, row) + v * 256) = pack8(f[v]);
    }
  }
}

bool vectors(const View& v) {
  return v.data == nullptr ||
         (aligned16(v.data) && v.dim % 8 == 0 && v.stride_n % 8 == 0 && v.stride_h % 8 == 0);
}

template <int Pieces>
void launch_rows(const NormParams& p, Stream stream) {
  static const int processors = multiprocessors();
  const bool rounded = p.rounded != nullptr;
  const Grid grid{dim3(static_cast<unsigned>((rounded && Pieces > 1 ? 4 : 5) * processors)),
                  dim3(kRowThreads)};
  launch("norm", rounded ? rows_kernel<Pieces, true> : rows_kernel<Pieces, false>, grid, stream, p);
}

template <int Pieces>
void launch_pieces(const NormParams& p, const Grid& grid, Stream stream) {
  const bool whole = vectors(p.out) && vectors(p.x) && vectors(p.add) && aligned16(p.gain);
  visit_activations(p.x.type, [&](auto element) {
    using T = decltype(element);
    launch("norm", whole ? norm_kernel<T, Pieces, true> : norm_kernel<T, Pieces, false>, grid, stream, p);
  });
}

}  // namespace

bool norm_mixes(const NormParams& p) {
  return p.x.type == DType::BF16 && p.x.heads == 1 && p.x.dim > 256 && p.x.dim <= 8192 && vectors(p.out) &&
         vectors(p.x) && vectors(p.add) && aligned16(p.gain);
}

bool norm_rounds(const NormParams& p) {
  return p.kind == NormKind::Rms && p.fixed_order == 0 && p.mixed.x.data == nullptr &&
         p.x.type == DType::BF16 && p.x.heads == 1 && p.x.dim > 256 && p.x.dim <= 8192 && p.x.dim % 16 == 0 &&
         vectors(p.out) && vectors(p.x) && vectors(p.add) && aligned16(p.gain);
}

void launch_norm(const NormParams& p, Stream stream) {
  const int64_t rows = p.x.n * p.x.heads;
  if (rows == 0) return;
  const int64_t wanted = ceil_div(p.x.dim, 8);
  if (p.mixed.x.data != nullptr) {
    check_launch(norm_mixes(p) ? cudaSuccess : cudaErrorInvalidValue, "norm of a mixture's sum");
    const Grid grid{dim3(static_cast<unsigned>(rows)),
                    dim3(static_cast<unsigned>(ceil_div(wanted, 32) * 32))};
    return launch("combine and norm", norm_kernel<bf16, 1, true, true>, grid, stream, p);
  }
  if (wanted <= 32) {
    const Grid grid{dim3(static_cast<unsigned>(ceil_div(rows, 8))), dim3(32, 8)};
    return launch_pieces<1>(p, grid, stream);
  }
  static const int processors = multiprocessors();
  const bool aligned =
      p.x.type == DType::BF16 && vectors(p.out) && vectors(p.x) && vectors(p.add) && aligned16(p.gain);
  if (p.fixed_order == 0 && rows >= 8 * processors && p.kind == NormKind::Rms && aligned &&
      wanted <= 4 * kRowThreads) {
    const Grid pair{dim3(static_cast<unsigned>(2 * processors)), dim3(kRowThreads)};
    const bool by_warps = p.x.heads == 1 && p.rounded == nullptr;
    if (by_warps && p.x.dim == 1024) return launch("norm", warp_rows_kernel<4>, pair, stream, p);
    if (by_warps && p.x.dim == 512) return launch("norm", warp_rows_kernel<2>, pair, stream, p);
    if (wanted <= kRowThreads) return launch_rows<1>(p, stream);
    if (wanted <= 2 * kRowThreads) return launch_rows<2>(p, stream);
    return launch_rows<4>(p, stream);
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
