// The GEMM for every shape and weight type, and for many matrices at once (experts, heads):
// out[i, :] = x[gather[i], :] · W_gᵀ + bias_g for the entries i of each group g.
//
// A block of four warps makes 64 weight rows x 32 entries with mma m16n8k16, weight rows as the 16-row
// operand, over steps of 64 columns through shared memory; weights are decoded to bf16 on their way there.
// Rows of shared memory are padded by 16 bytes, so that fragments are read without bank conflicts. A block
// walks over the tiles of its group's entries, so the grid does not depend on how many entries a group has.
//
// f32 entries are split into two bf16 numbers each, the second of what the first leaves over, which lie in neighbouring
// columns of the GEMM and are added in its registers; decoded weights are split too. Sums then have the 16 bits of
// both, at twice the multiplications (four times for packed types); where weights come from memory that is hidden.
#include <type_traits>

#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kRows = 64, kColumns = 32, kDepth = 64, kPitch = kDepth + 8, kThreads = 128;

// XParts: columns per entry; WeightParts: numbers per weight.
template <int XParts, int WeightParts>
struct Tile {
  static constexpr int kXParts = XParts, kWeightParts = WeightParts, kEntries = kColumns / XParts;
  bf16 weights[WeightParts][kRows][kPitch];
  bf16 x[kColumns][kPitch];
  int64_t source[kEntries];  // row of x, or -1
};

template <class Type, class Tile>
__device__ __forceinline__ void load_weights(Tile& tile, const GroupedGemmParams& p, const uint8_t* matrix,
                                             int64_t row0, int64_t k0) {
  for (int piece = threadIdx.x; piece < kRows * kDepth / 8; piece += kThreads) {
    const int r = piece / (kDepth / 8), c = piece % (kDepth / 8) * 8;
    float f[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = 0.0f;
    if (row0 + r < p.weight.rows && k0 + c < p.weight.cols)
      Type::dequantize8(matrix + (row0 + r) * p.weight.row_bytes, k0 + c, f);
    *reinterpret_cast<uint4*>(&tile.weights[0][r][c]) = pack8(f);
    if constexpr (Tile::kWeightParts == 2) {
      leave_rest(f);
      *reinterpret_cast<uint4*>(&tile.weights[1][r][c]) = pack8(f);
    }
  }
}

template <class T, class Tile>
__device__ __forceinline__ void load_entries(Tile& tile, const GroupedGemmParams& p, const T* x, bool vector,
                                             int64_t k0) {
  for (int piece = threadIdx.x; piece < Tile::kEntries * kDepth / 8; piece += kThreads) {
    const int e = piece / (kDepth / 8), c = piece % (kDepth / 8) * 8;
    const int64_t count = tile.source[e] >= 0 ? p.weight.cols - k0 - c : 0;
    float f[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = 0.0f;
    const T* from = x + tile.source[e] * p.x.stride_n + k0 + c;
    if (count >= 8 && vector) {
      load8<true>(from, 8, f);
    } else if (count > 0) {
      load8<false>(from, count, f);
    }
    *reinterpret_cast<uint4*>(&tile.x[e * Tile::kXParts][c]) = pack8(f);
    if constexpr (Tile::kXParts == 2) {
      leave_rest(f);
      *reinterpret_cast<uint4*>(&tile.x[e * Tile::kXParts + 1][c]) = pack8(f);
    }
  }
}

__device__ __forceinline__ uint32_t pair_at(const bf16* p) {
  return *reinterpret_cast<const uint32_t*>(p);
}

template <class Tile>
__device__ __forceinline__ void multiply(const Tile& tile, float (&acc)[kColumns / 8][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
#pragma unroll
    for (int part = 0; part < Tile::kWeightParts; ++part) {
      const bf16* a = &tile.weights[part][warp * 16 + g][k + t * 2];
      const uint32_t a0 = pair_at(a), a1 = pair_at(a + 8 * kPitch), a2 = pair_at(a + 8),
                     a3 = pair_at(a + 8 * kPitch + 8);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        const bf16* b = &tile.x[n * 8 + g][k + t * 2];
        mma_bf16(acc[n], a0, a1, a2, a3, pair_at(b), pair_at(b + 8));
      }
    }
  }
}

// grid: (row tiles, walkers over entry tiles, groups)
template <class Type, class T>
__global__ void __launch_bounds__(kThreads) grouped_gemm_kernel(const GroupedGemmParams p) {
  constexpr bool kSplit = sizeof(T) == sizeof(float);
  constexpr bool kExact = std::is_same_v<Type, Decoder<DType::BF16>>;
  using ThisTile = Tile<kSplit ? 2 : 1, kSplit && !kExact ? 2 : 1>;
  constexpr int kEntries = ThisTile::kEntries;
  __shared__ ThisTile tile;
  allow_dependents();
  wait_for_producer();
  const int64_t group = blockIdx.z, row0 = int64_t{blockIdx.x} * kRows;
  const int64_t begin = p.begin != nullptr ? p.begin[group] : 0;
  const int64_t end = p.begin != nullptr ? p.begin[group + 1] : p.x.n;
  const auto* matrix = static_cast<const uint8_t*>(p.weights != nullptr ? p.weights[group] : p.weight.data);
  const float* bias = p.biases != nullptr ? p.biases[group] : p.bias;
  const T* x = static_cast<const T*>(p.x.data) + (p.begin != nullptr ? 0 : group * p.x.stride_h);
  T* out = static_cast<T*>(p.out.data) + (p.begin != nullptr ? 0 : group * p.out.stride_h);
  const bool vector = p.x.stride_n % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;

  for (int64_t entry0 = begin + int64_t{blockIdx.y} * kEntries; entry0 < end;
       entry0 += int64_t{gridDim.y} * kEntries) {
    __syncthreads();
    if (threadIdx.x < kEntries) {
      const int64_t entry = entry0 + threadIdx.x;
      tile.source[threadIdx.x] = entry >= end ? -1 : p.gather != nullptr ? p.gather[entry] : entry;
    }
    float acc[kColumns / 8][4] = {};
    for (int64_t k0 = 0; k0 < p.weight.cols; k0 += kDepth) {
      __syncthreads();
      load_weights<Type>(tile, p, matrix, row0, k0);
      load_entries(tile, p, x, vector, k0);
      __syncthreads();
      multiply(tile, acc);
    }
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; i += ThisTile::kXParts) {
        const int64_t row = row0 + warp * 16 + g + (i / 2) * 8;
        const int64_t entry = entry0 + (n * 8 + t * 2 + i % 2) / ThisTile::kXParts;
        const float sum = kSplit ? acc[n][i] + acc[n][i + 1] : acc[n][i];
        if (row < p.weight.rows && entry < end)
          out[entry * p.out.stride_n + row] = narrow<T>(sum + (bias != nullptr ? bias[row] : 0.0f));
      }
    }
  }
}

}  // namespace

void launch_grouped_gemm(const GroupedGemmParams& p, Stream stream) {
  if (p.x.n == 0 || p.groups == 0) return;
  const int64_t entries = p.begin != nullptr ? p.out.n : p.x.n;
  const int64_t walkers = ceil_div(entries, p.x.type == DType::F32 ? kColumns / 2 : kColumns);
  const int64_t limit = p.begin != nullptr ? 8 : 4096;
  const Grid grid{
      dim3(static_cast<unsigned>(ceil_div(p.weight.rows, kRows)),
           static_cast<unsigned>(walkers < limit ? walkers : limit), static_cast<unsigned>(p.groups)),
      dim3(kThreads)};
  const bool known = visit_matrix(p.weight, [&](auto type) {
    visit_activations(p.x.type, [&](auto element) {
      launch("tile", grouped_gemm_kernel<decltype(type), decltype(element)>, grid, stream, p);
    });
  });
  check_launch(known ? cudaSuccess : cudaErrorInvalidValue, "tile of this type");
}

}  // namespace sluice::kernels::cuda
