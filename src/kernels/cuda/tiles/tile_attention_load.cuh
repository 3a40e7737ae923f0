// What tile_attention.cu keeps in shared memory, which rows a block has, and how keys and values come there.
#pragma once

#include <climits>
#include <type_traits>

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/tiles/tile_attention.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTileWarps = 4, kTileKeys = 64;
constexpr float kLogOfE = 1.44269504088896340736f;

template <int D, bool kFew>
struct TileShared {
  static constexpr int kPitch = D + 8, kRows = kFew ? 16 : 16 * kTileWarps;
  bf16 q[kRows][kPitch], k[kTileKeys][kPitch], v[kTileKeys][kPitch];
  int64_t key_at[2][kTileKeys], value_at[2][kTileKeys];  // elements from the cache's first; below zero: none
  float key_scale[2][kTileKeys], value_scale[2][kTileKeys];
  int32_t sequence, tile, first, last;
};

__device__ __forceinline__ uint32_t tile_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// 16 bytes, or zeros.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tile_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ float exp_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Which rows a block has: warp 0 counts the tiles of the sequences.
template <class Shared>
__device__ void find_tile(const TileAttentionParams& p, int64_t group, Shared& s) {
  const int lane = threadIdx.x;
  int64_t left = blockIdx.x;
  if (lane == 0) s.sequence = -1, s.first = INT32_MAX, s.last = -1;
  __syncwarp();
  for (int base = 0; base < p.sequences; base += 32) {
    const int sequence = base + lane;
    const int64_t rows =
        sequence < p.sequences ? (p.query_begin[sequence + 1] - p.query_begin[sequence]) * group : 0;
    const int tiles = static_cast<int>((rows + Shared::kRows - 1) / Shared::kRows);
    int end = tiles;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(0xffffffffu, end, o);
      if (lane >= o) end += before;
    }
    if (left >= end - tiles && left < end)
      s.sequence = sequence, s.tile = static_cast<int>(left - (end - tiles));
    const int all = __shfl_sync(0xffffffffu, end, 31);
    if (left < all) return;
    left -= all;
  }
}

// A row of the block: a token's query head, and the positions that it sees.
struct TileRow {
  int64_t token = 0, head = 0;
  int32_t own = 0, first = INT32_MAX, last = -1;
  bool there = false;

  __device__ TileRow(const TileAttentionParams& p, int32_t sequence, int64_t flat, int64_t group) {
    const AttentionParams& a = p.attention;
    token = p.query_begin[sequence] + flat / group;
    head = int64_t{blockIdx.y} * group + flat % group;
    there = token < p.query_begin[sequence + 1];
    if (!there) return;
    own = a.table.positions[token];
    first = a.chunked != 0 ? own - own % a.window : a.window > 0 && own >= a.window ? own - a.window + 1 : 0;
    last = a.table.seen != nullptr ? a.table.seen[token] : own;
  }
};

// Where the keys [begin, begin + 64) lie.
template <class Shared>
__device__ void place_keys(const AttentionParams& a, Shared& s, int turn, int32_t begin,
                           const int32_t* blocks) {
  const int i = threadIdx.x;
  if (i >= kTileKeys) return;
  const int32_t position = begin + i;
  s.key_at[turn][i] = s.value_at[turn][i] = -1;
  if (position > s.last) return;
  const int64_t block = blocks[position / a.table.block_size], slot = position % a.table.block_size;
  const int64_t head = blockIdx.y;
  s.key_at[turn][i] = block * a.k.stride_block + slot * a.k.stride_slot + head * a.k.stride_head;
  s.value_at[turn][i] = block * a.v.stride_block + slot * a.v.stride_slot + head * a.v.stride_head;
  if (a.k.scales == nullptr) return;
  s.key_scale[turn][i] = a.k.scales[block * a.k.scale_stride_block + slot * a.k.scale_stride_slot + head];
  s.value_scale[turn][i] = a.v.scales[block * a.v.scale_stride_block + slot * a.v.scale_stride_slot + head];
}

// Eight elements of a cache of one byte as bf16.
template <class Element>
__device__ __forceinline__ uint4 widen8(const Element* from, float scale) {
  union {
    uint2 words;
    Element elements[8];
  } x;
  x.words = *reinterpret_cast<const uint2*>(from);
  float f[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) f[j] = widen(x.elements[j]) * scale;
  return pack8(f);
}

// Starts to bring 64 rows of a cache; columns from `dim` on stay as they are.
template <class Element, int kPitch>
__device__ void bring(bf16 (*to)[kPitch], const CacheView& cache, const int64_t* at, const float* scales) {
  const int pieces = static_cast<int>(cache.dim) / 8;
  const auto* data = static_cast<const Element*>(cache.data);
  for (int i = threadIdx.x; i < kTileKeys * pieces; i += kTileWarps * 32) {
    const int row = i / pieces, column = i % pieces * 8;
    const int64_t place = at[row];
    if constexpr (std::is_same_v<Element, bf16>) {
      copy_async(&to[row][column], data + (place < 0 ? 0 : place + column), place >= 0);
    } else {
      uint4 eight = make_uint4(0, 0, 0, 0);
      if (place >= 0) eight = widen8(data + place + column, cache.scales != nullptr ? scales[row] : 1.0f);
      *reinterpret_cast<uint4*>(&to[row][column]) = eight;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
