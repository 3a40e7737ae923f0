// Hopper's warpgroup matrix instructions, through CuTe, and the clusters of blocks that share what feeds them.
//
// multiply(sums, a, b, accumulate): sums[64, N] (+)= a[64, 16] · b[N, 16]ᵀ in bf16 with f32 sums, both operands in shared
// memory as rows of 128 bytes, swizzled; N is twice the number of sums a thread holds. Element (row, column) of the
// result is in warp row / 16 of the group, lane (row % 8) · 4 + column % 8 / 2, sum column / 8 · 4 + row % 16 / 8 · 2 +
// column % 2.
//
// multiply(sums, a, b): the same with the 64-row operand in registers, always added. A lane's four words of a are those of
// mma m16n8k16 for the 16 rows of its warp.
#pragma once

#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/arch/mma_sm90_gmma_ext.hpp>
#include <utility>

#include "kernels/cuda/common/tma.cuh"

namespace sluice::kernels::cuda {

namespace wgmma {
using namespace cute::SM90::GMMA;
constexpr Major K = Major::K;
template <int Sums>
struct FromShared;
template <>
struct FromShared<4> : MMA_64x8x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<8> : MMA_64x16x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<16> : MMA_64x32x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<32> : MMA_64x64x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<48> : MMA_64x96x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<64> : MMA_64x128x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<80> : MMA_64x160x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<96> : MMA_64x192x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<112> : MMA_64x224x16_F32BF16BF16_SS<K, K> {};
template <>
struct FromShared<128> : MMA_64x256x16_F32BF16BF16_SS<K, K> {};
// The same of fp8 (e4m3): 32 elements, which are as many bytes.
template <int Sums>
struct FromSharedFp8;
template <>
struct FromSharedFp8<16> : MMA_64x32x32_F32E4M3E4M3_SS_TN<> {};
template <>
struct FromSharedFp8<32> : MMA_64x64x32_F32E4M3E4M3_SS_TN<> {};
template <>
struct FromSharedFp8<48> : MMA_64x96x32_F32E4M3E4M3_SS_TN<> {};
template <>
struct FromSharedFp8<64> : MMA_64x128x32_F32E4M3E4M3_SS_TN<> {};
template <>
struct FromSharedFp8<96> : MMA_64x192x32_F32E4M3E4M3_SS_TN<> {};
template <>
struct FromSharedFp8<112> : MMA_64x224x32_F32E4M3E4M3_SS_TN<> {};
template <>
struct FromSharedFp8<128> : MMA_64x256x32_F32E4M3E4M3_SS_TN<> {};
template <int Sums>
struct FromRegisters;
template <>
struct FromRegisters<8> : MMA_64x16x16_F32BF16BF16_RS<K, K> {};
template <>
struct FromRegisters<16> : MMA_64x32x16_F32BF16BF16_RS<K, K> {};
template <>
struct FromRegisters<32> : MMA_64x64x16_F32BF16BF16_RS<K, K> {};
template <>
struct FromRegisters<64> : MMA_64x128x16_F32BF16BF16_RS<K, K> {};
}  // namespace wgmma

template <int Sums>
__device__ __forceinline__ void multiply(float (&d)[Sums], uint64_t a, uint64_t b, int accumulate) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    wgmma::FromShared<Sums>::fma(a, b, d[I]..., static_cast<wgmma::ScaleOut>(accumulate));
  }
  (std::make_index_sequence<Sums>{});
}

using Fp8Element = __nv_fp8_e4m3;

// The same for elements of a type: E is bf16, or Fp8Element for a[64, 32] · b[N, 32]ᵀ.
template <class E, int Sums>
__device__ __forceinline__ void multiply(float (&d)[Sums], uint64_t a, uint64_t b, int accumulate) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    if constexpr (sizeof(E) == 1) {
      wgmma::FromSharedFp8<Sums>::fma(a, b, d[I]..., static_cast<wgmma::ScaleOut>(accumulate));
    } else {
      wgmma::FromShared<Sums>::fma(a, b, d[I]..., static_cast<wgmma::ScaleOut>(accumulate));
    }
  }
  (std::make_index_sequence<Sums>{});
}

template <int Sums>
__device__ __forceinline__ void multiply(float (&d)[Sums], const uint32_t* a, uint64_t b) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    wgmma::FromRegisters<Sums>::fma(a[0], a[1], a[2], a[3], b, d[I]...);
  }
  (std::make_index_sequence<Sums>{});
}

// An operand of multiply(): rows of 128 bytes, swizzled, eight of them 1024 bytes apart from the next eight.
__device__ __forceinline__ uint64_t describe_operand(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffffu) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
// Where block `rank` of the cluster has what this block has at `address` of its shared memory.
__device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ float4 load_shared(uint32_t in_cluster) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(in_cluster)
               : "memory");
  return v;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

}  // namespace sluice::kernels::cuda
