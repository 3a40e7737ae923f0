// A block has 64 rows of (token, query head) of one sequence and KV head, 16 to a warp, and walks over its share of their
// keys, 64 at a time: scores = Q · Kᵀ and out = P · V by mma.m16n8k16, with running maxima and sums in registers (the
// scheme of FlashAttention 2). Keys begin at multiples of 64, so that what a row adds up depends on no other row. Keys of a
// tile travel while the values before them are multiplied, and values while their keys are; caches of one byte are widened
// on the way. Rows of shared memory are 16 bytes longer than a head: eight of them lie in different banks.
//
// Where sequences have one token each (kFew), a block has 16 rows, which its four warps share: each takes 16 keys of every
// 64, and what they add up comes together in shared memory at the end.
//
// Reads keys and values once per 64 (16) rows. With several splits each writes its sums, which a second kernel brings
// together.
#include "kernels/cuda/tiles/tile_attention.h"

#include <algorithm>

#include "kernels/cuda/tiles/tile_attention_load.cuh"

namespace sluice::kernels::cuda {
namespace {

// What a warp has of its 16 rows: lane 4 g + t has rows g and g + 8, of every 8 columns those of 2 t and 2 t + 1.
template <int D, bool kFew>
struct TileSums {
  static constexpr int kPairs = kFew ? 1 : 4;  // of eight keys, of a tile
  float out[D / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};

  __device__ void scores(float (&score)[2 * kPairs][4], const TileShared<D, kFew>& s, int warp,
                         int lane) const {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) score[j][0] = score[j][1] = score[j][2] = score[j][3] = 0.0f;
    const int first_row = kFew ? 0 : warp * 16, first_key = kFew ? warp * 16 : 0;
    const uint32_t q = tile_address(&s.q[first_row + lane % 16][lane / 16 * 8]);
    const uint32_t k = tile_address(&s.k[first_key + lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t a[4];
      load_matrices(q + d * 32, a);
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        uint32_t b[4];
        load_matrices(k + n * 16 * TileShared<D, kFew>::kPitch * 2 + d * 32, b);
        mma_bf16(score[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_bf16(score[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }

  // Scores of row `half` of the two become weights, in units of the largest so far.
  __device__ void weigh(float (&score)[2 * kPairs][4], int half) {
    float largest = maximum[half];
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j)
      largest = fmaxf(largest, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float keep = exp_of_two(maximum[half] - base);
    maximum[half] = largest;
    sum[half] *= keep;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) out[j][2 * half] *= keep, out[j][2 * half + 1] *= keep;
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score[j][i] = exp_of_two(score[j][i] - base);
        sum[half] += score[j][i];
      }
  }

  __device__ void add_values(const float (&weight)[2 * kPairs][4], const TileShared<D, kFew>& s, int warp,
                             int lane) {
    const uint32_t v = tile_address(&s.v[(kFew ? warp * 16 : 0) + lane % 16][lane / 16 * 8]);
#pragma unroll
    for (int t = 0; t < kPairs; ++t) {
      const uint32_t a[4] = {pack_pair(weight[2 * t][0], weight[2 * t][1]),
                             pack_pair(weight[2 * t][2], weight[2 * t][3]),
                             pack_pair(weight[2 * t + 1][0], weight[2 * t + 1][1]),
                             pack_pair(weight[2 * t + 1][2], weight[2 * t + 1][3])};
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        load_transposed(v + t * 16 * TileShared<D, kFew>::kPitch * 2 + n * 32, b);
        mma_bf16(out[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_bf16(out[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
};

// Brings what the four warps have of the same rows together, in their order, for warp 0. The tiles' memory is free.
template <int D>
__device__ void merge_warps(TileSums<D, true>& sums, TileShared<D, true>& s, int warp, int lane) {
  constexpr int kEach = D / 8 * 4 + 4;  // floats of a lane
  auto* const memory = reinterpret_cast<float*>(s.k);
  static_assert(3 * 32 * kEach * sizeof(float) <= sizeof(s.k) + sizeof(s.v));
  __syncthreads();
  if (warp > 0) {
    float* mine = memory + (warp - 1) * 32 * kEach + lane;
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) mine[(j * 4 + i) * 32] = sums.out[j][i];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mine[(D / 2 + half) * 32] = sums.maximum[half];
      mine[(D / 2 + 2 + half) * 32] = sums.sum[half];
    }
  }
  __syncthreads();
  if (warp > 0) return;
  for (int other = 0; other < 3; ++other) {
    const float* theirs = memory + other * 32 * kEach + lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float maximum = theirs[(D / 2 + half) * 32], largest = fmaxf(sums.maximum[half], maximum);
      const float base = largest == -INFINITY ? 0.0f : largest;
      const float keep = exp_of_two(sums.maximum[half] - base), take = exp_of_two(maximum - base);
      sums.maximum[half] = largest;
      sums.sum[half] = sums.sum[half] * keep + theirs[(D / 2 + 2 + half) * 32] * take;
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          sums.out[j][i] = sums.out[j][i] * keep + theirs[(j * 4 + i) * 32] * take;
    }
  }
}

// Scales, caps and biases the scores of a row, to base two; what it does not see becomes -inf.
template <int kTiles>
__device__ __forceinline__ void finish_scores(float (&score)[kTiles][4], int half, const AttentionParams& a,
                                              const TileRow& row, int32_t begin) {
  const float slope = a.alibi != nullptr && row.there ? a.alibi[row.head] : 0.0f;
  const int32_t column = begin + threadIdx.x % 4 * 2;
  const bool whole = begin >= row.first && begin + kTiles * 8 - 1 <= row.last;
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t position = column + j * 8 + i;
      float x = score[j][2 * half + i] * a.scale;
      if (a.softcap > 0.0f) x = a.softcap * tanhf(x / a.softcap);
      if (a.alibi != nullptr) x += slope * static_cast<float>(position - row.own);
      score[j][2 * half + i] =
          whole || (position >= row.first && position <= row.last) ? x * kLogOfE : -INFINITY;
    }
}

template <int D, bool kFew>
__device__ void store_row(const TileAttentionParams& p, const TileSums<D, kFew>& sums, int half,
                          const TileRow& row) {
  const AttentionParams& a = p.attention;
  float sum = sums.sum[half];
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (!row.there) return;
  const int column = threadIdx.x % 4 * 2, value_dim = static_cast<int>(a.v.dim);
  if (p.splits > 1) {
    const int64_t rows = a.q.n * a.q.heads,
                  at = int64_t{blockIdx.z} * rows + row.token * a.q.heads + row.head;
    float* values = p.partial + at * value_dim;
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
      if (j * 8 + column < value_dim)
        *reinterpret_cast<float2*>(values + j * 8 + column) =
            make_float2(sums.out[j][2 * half], sums.out[j][2 * half + 1]);
    if (column == 0)
      *reinterpret_cast<float2*>(p.partial + p.splits * rows * value_dim + 2 * at) =
          make_float2(sums.maximum[half], sum);
    return;
  }
  float factor = 1.0f;
  if (a.sinks != nullptr) {
    const float sink = a.sinks[row.head] * kLogOfE, largest = fmaxf(sink, sums.maximum[half]);
    factor = exp_of_two(sums.maximum[half] - largest);
    sum = sum * factor + exp_of_two(sink - largest);
  }
  const float scale = sum > 0.0f ? factor / sum : 0.0f;
  bf16* out = static_cast<bf16*>(a.out.data) + row.token * a.out.stride_n + row.head * a.out.stride_h;
#pragma unroll
  for (int j = 0; j < D / 8; ++j)
    if (j * 8 + column < value_dim)
      *reinterpret_cast<uint32_t*>(out + j * 8 + column) =
          pack_pair(sums.out[j][2 * half] * scale, sums.out[j][2 * half + 1] * scale);
}

// grid: (tiles of rows, KV heads, splits)
template <class Element, int D, bool kFew>
__global__ void __launch_bounds__(kTileWarps * 32, D <= 128 ? 3 : 2)
    tile_kernel(const TileAttentionParams p) {
  using Shared = TileShared<D, kFew>;
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const AttentionParams& a = p.attention;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t group = a.q.heads / a.kv_heads;
  // Columns behind a head's size count as zeros.
  for (int i = threadIdx.x; i < (Shared::kRows + 2 * kTileKeys) * Shared::kPitch / 8; i += kTileWarps * 32)
    reinterpret_cast<uint4*>(s.q)[i] = make_uint4(0, 0, 0, 0);
  allow_dependents();
  wait_for_producer();
  if (warp == 0) find_tile(p, group, s);
  __syncthreads();
  if (s.sequence < 0) return;
  const int64_t first_row = int64_t{s.tile} * Shared::kRows;
  const int pieces = static_cast<int>(a.k.dim) / 8;
  for (int i = threadIdx.x; i < Shared::kRows * pieces; i += kTileWarps * 32) {
    const int64_t flat = first_row + i / pieces, token = p.query_begin[s.sequence] + flat / group;
    if (token >= p.query_begin[s.sequence + 1]) continue;
    const int64_t head = int64_t{blockIdx.y} * group + flat % group;
    *reinterpret_cast<uint4*>(&s.q[i / pieces][i % pieces * 8]) = *reinterpret_cast<const uint4*>(
        static_cast<const bf16*>(a.q.data) + token * a.q.stride_n + head * a.q.stride_h + i % pieces * 8);
  }
  const int64_t warp_row = kFew ? 0 : warp * 16;
  const TileRow rows[2] = {TileRow(p, s.sequence, first_row + warp_row + lane / 4, group),
                           TileRow(p, s.sequence, first_row + warp_row + lane / 4 + 8, group)};
  const bool working = __any_sync(0xffffffffu, rows[0].there || rows[1].there);
#pragma unroll
  for (const TileRow& row : rows)
    if (row.there && lane % 4 == 0) {
      atomicMin(&s.first, row.first);
      atomicMax(&s.last, row.last);
    }
  __syncthreads();
  const int32_t begin = s.first / kTileKeys * kTileKeys;
  const int32_t tiles = s.last < begin ? 0 : (s.last - begin) / kTileKeys + 1;
  const int32_t each = (tiles + p.splits - 1) / p.splits;
  const int32_t from = static_cast<int32_t>(blockIdx.z) * each, to = min(from + each, tiles);
  const int32_t* blocks = a.table.blocks + a.table.row_begin[a.table.sequence[p.query_begin[s.sequence]]];

  TileSums<D, kFew> sums;
  if (from < to) {
    place_keys(a, s, from % 2, begin + from * kTileKeys, blocks);
    __syncthreads();
    bring<Element>(s.k, a.k, s.key_at[from % 2], s.key_scale[from % 2]);
  }
  for (int32_t tile = from; tile < to; ++tile) {
    const int32_t keys = begin + tile * kTileKeys;
    await_copies();
    __syncthreads();
    bring<Element>(s.v, a.v, s.value_at[tile % 2], s.value_scale[tile % 2]);
    float score[2 * TileSums<D, kFew>::kPairs][4];
    if (working) {
      sums.scores(score, s, warp, lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        finish_scores(score, half, a, rows[half], keys + (kFew ? warp * 16 : 0));
        sums.weigh(score, half);
      }
    }
    if (tile + 1 < to) place_keys(a, s, (tile + 1) % 2, keys + kTileKeys, blocks);
    await_copies();
    __syncthreads();
    if (tile + 1 < to) bring<Element>(s.k, a.k, s.key_at[(tile + 1) % 2], s.key_scale[(tile + 1) % 2]);
    if (working) sums.add_values(score, s, warp, lane);
  }
  if constexpr (kFew) {
    merge_warps(sums, s, warp, lane);
    if (warp > 0) return;
  }
  store_row(p, sums, 0, rows[0]);
  store_row(p, sums, 1, rows[1]);
}

// grid: (rows); brings the splits of a row together.
__global__ void __launch_bounds__(128) merge_kernel(const TileAttentionParams p) {
  allow_dependents();
  wait_for_producer();
  const AttentionParams& a = p.attention;
  const int64_t row = blockIdx.x, rows = a.q.n * a.q.heads, token = row / a.q.heads, head = row % a.q.heads;
  const auto* counts = reinterpret_cast<const float2*>(p.partial + p.splits * rows * a.v.dim);
  float largest = a.sinks != nullptr ? a.sinks[head] * kLogOfE : -INFINITY;
  for (int z = 0; z < p.splits; ++z) largest = fmaxf(largest, counts[z * rows + row].x);
  const float base = largest == -INFINITY ? 0.0f : largest;
  float sum = a.sinks != nullptr ? exp_of_two(a.sinks[head] * kLogOfE - base) : 0.0f;
  for (int z = 0; z < p.splits; ++z)
    sum += counts[z * rows + row].y * exp_of_two(counts[z * rows + row].x - base);
  bf16* out = static_cast<bf16*>(a.out.data) + token * a.out.stride_n + head * a.out.stride_h;
  for (int64_t d = threadIdx.x; d < a.v.dim; d += blockDim.x) {
    float value = 0.0f;
    for (int z = 0; z < p.splits; ++z) {
      const float2 count = counts[z * rows + row];
      if (count.y > 0.0f) value += p.partial[(z * rows + row) * a.v.dim + d] * exp_of_two(count.x - base);
    }
    out[d] = __float2bfloat16(sum > 0.0f ? value / sum : 0.0f);
  }
}

template <class Element, int D, bool kFew>
void launch_rows(const TileAttentionParams& p, Stream stream) {
  using Shared = TileShared<D, kFew>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      tile_kernel<Element, D, kFew>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  check_launch(allowed, "tile attention");
  const AttentionParams& a = p.attention;
  const int64_t tiles = a.q.n * (a.q.heads / a.kv_heads) / Shared::kRows + p.sequences;
  const Grid grid{dim3(static_cast<unsigned>(kFew ? p.sequences : tiles), static_cast<unsigned>(a.kv_heads),
                       static_cast<unsigned>(p.splits)),
                  dim3(kTileWarps * 32), sizeof(Shared)};
  launch("tile attention", tile_kernel<Element, D, kFew>, grid, stream, p);
}

template <class Element, int D>
void launch_tiles(const TileAttentionParams& p, Stream stream) {
  if (p.few != 0) return launch_rows<Element, D, true>(p, stream);
  launch_rows<Element, D, false>(p, stream);
}

template <class Element>
void launch_size(const TileAttentionParams& p, Stream stream) {
  const int64_t dim = std::max(p.attention.k.dim, p.attention.v.dim);
  if (dim <= 64) return launch_tiles<Element, 64>(p, stream);
  if (dim <= 96) return launch_tiles<Element, 96>(p, stream);
  if (dim <= 128) return launch_tiles<Element, 128>(p, stream);
  if (dim <= 192) return launch_tiles<Element, 192>(p, stream);
  launch_tiles<Element, 256>(p, stream);
}

}  // namespace

bool tile_fits(const AttentionParams& p) {
  const auto cache_fits = [](const CacheView& c) {
    const bool type = c.type == DType::BF16 || c.type == DType::F8_E4M3 || c.type == DType::I8;
    return type && aligned16(c.data) && c.dim % 8 == 0 && c.dim <= 256 && c.stride_block % 8 == 0 &&
           c.stride_slot % 8 == 0 && c.stride_head % 8 == 0;
  };
  const bool memory = std::max(p.k.dim, p.v.dim) <= 192 ||
                      features().shared_bytes >= static_cast<int64_t>(sizeof(TileShared<256, false>));
  return p.q.type == DType::BF16 && p.out.type == DType::BF16 && p.k.type == p.v.type && cache_fits(p.k) &&
         cache_fits(p.v) && memory && aligned16(p.q.data) && p.q.stride_n % 8 == 0 && p.q.stride_h % 8 == 0 &&
         p.out.stride_n % 2 == 0 && p.out.stride_h % 2 == 0 && aligned16(p.out.data) && p.kv_heads > 0 &&
         p.q.heads % p.kv_heads == 0;
}

bool tile_few(const AttentionParams& a, int sequences) {
  return a.q.n == sequences && a.q.heads / a.kv_heads <= 16;
}

int tile_splits(const AttentionParams& p, int sequences, int processors) {
  constexpr int64_t kMostSplits = 32;
  const int64_t tiles =
      std::max<int64_t>(p.q.n * (p.q.heads / p.kv_heads) / (16 * kTileWarps), sequences) * p.kv_heads;
  return static_cast<int>(std::clamp<int64_t>(2 * int64_t{processors} / tiles, 1, kMostSplits));
}

size_t tile_partial_bytes(const AttentionParams& p, int splits) {
  if (splits == 1) return 0;
  return static_cast<size_t>(splits * p.q.n * p.q.heads * (p.v.dim + 2)) * sizeof(float);
}

void launch_tile_attention(const TileAttentionParams& p, Stream stream) {
  if (p.attention.q.n == 0) return;
  switch (p.attention.k.type) {
    case DType::BF16:
      launch_size<bf16>(p, stream);
      break;
    case DType::F8_E4M3:
      launch_size<__nv_fp8_e4m3>(p, stream);
      break;
    default:
      launch_size<int8_t>(p, stream);
  }
  if (p.splits == 1) return;
  launch("merge attention", merge_kernel,
         {dim3(static_cast<unsigned>(p.attention.q.n * p.attention.q.heads)), dim3(128)}, stream, p);
}

}  // namespace sluice::kernels::cuda
