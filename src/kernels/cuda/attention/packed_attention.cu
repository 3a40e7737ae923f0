// Attention of prompts with a fixed order of sums: several neighbouring tokens of a sequence share what they read, and
// each gets the bits that decode_attention.cu gives it alone.
//
// A block has one (pack of tokens, kv head). Its producer warp and its ring of units are those of decode_attention.cu, and so
// is what a warp does with its 16 keys of a unit. But the eight columns of its mma are (token, query head) pairs, as many
// tokens as fit, and a key or value that was read from shared memory is multiplied with four such tiles of columns.
// What a column sums up depends on no other one: keys that it does not see have weight zero, in units that its token
// would not read too.
//
// Queries lie in shared memory as the mma takes them: the registers are for the tiles' values. Reads 2 · 2 · Dim bytes (fp8:
// half of that) per key and kv head for up to 32 columns. Two blocks run at a time on a multiprocessor.
#include "kernels/cuda/attention/packed_attention.h"

#include "kernels/cuda/attention/decode_attention_consumer.cuh"
#include "kernels/cuda/attention/decode_attention_producer.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTiles = 4;    // of columns
constexpr int kColumns = 8;  // of a tile
static_assert(kColumns == kMaxGroup);

template <int Dim, int Bytes>
struct PackedLayout : OneLayout<Dim, Bytes, true> {
  using Base = OneLayout<Dim, Bytes, true>;
  // At the end the stages are free for what the warps bring together, one tile after the other.
  static constexpr int kValues = 0, kMaxima = kWarps * kMaxGroup * Base::kPitch * 4;
  static constexpr int kSums = kMaxima + kWarps * kMaxGroup * 4;
  static_assert(kSums + kWarps * kMaxGroup * 4 <= Base::kQueries);
  static constexpr int kBarriers = Base::kQueries + kTiles * Base::kQueryBytes;
  static constexpr int kShared = kBarriers + 2 * Base::kStages * 8;
  static_assert(2 * (kShared + 1024) <= 233472, "two blocks of a multiprocessor");
};

struct Pack {
  int token, count, position, row;
  __device__ __forceinline__ int last() const { return position + count - 1; }
};

// Tokens of a tile.
__device__ __forceinline__ int tile_tokens(const OneArguments& p) {
  return kColumns / p.group;
}

template <class L>
__device__ __forceinline__ void store_queries(const OneArguments& p, const Pack& pack, int head,
                                              uint8_t* shared) {
  auto* const pairs = reinterpret_cast<uint2*>(shared + L::kQueries);
  const int each = tile_tokens(p);
  for (int i = threadIdx.x; i < kTiles * L::kDim / 16 * 32; i += kWarps * 32) {
    const int lane = i % 32, k = i / 32 % (L::kDim / 16), tile = i / (32 * L::kDim / 16);
    const int column = lane >> 2, token = tile * each + column / p.group;
    const bool there = column < each * p.group && token < pack.count;
    const bf16* query =
        p.q + (pack.token + token) * p.q_stride + (int64_t{head} * p.group + column % p.group) * L::kDim;
    pairs[i] = there ? OneShare<L>::query_pairs(reinterpret_cast<const uint32_t*>(query), k, lane & 3)
                     : make_uint2(0u, 0u);
  }
}

// One warp's share of all tiles.
template <class L>
struct PackedShare {
  static constexpr int Dim = L::kDim, Bytes = L::kBytes;
  OneShare<L> tiles[kTiles];
  int used;       // tiles
  int tokens[2];  // of the first tile's columns 2 t and 2 t + 1

  __device__ __forceinline__ void start(const OneArguments& p, const Pack& pack, int head, int lane) {
    const int t = lane & 3;
    used = (pack.count + tile_tokens(p) - 1) / tile_tokens(p);
    float slopes[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      tokens[h] = (2 * t + h) / p.group;
      slopes[h] = p.alibi != nullptr ? p.alibi[head * p.group + (2 * t + h) % p.group] : 0.0f;
    }
#pragma unroll
    for (auto& tile : tiles) tile.clear(slopes);
  }

  __device__ __forceinline__ void multiply_keys(uint32_t stage, const uint2* queries, int warp, int lane,
                                                float (&even)[kTiles][4], float (&odd)[kTiles][4]) const {
    const uint32_t keys = OneShare<L>::address_of(stage, warp, lane & 15, lane >> 4);
    const auto query = [&](int tile, int k) { return queries[(tile * (Dim / 16) + k) * 32 + lane]; };
    if constexpr (Bytes == 2) {
#pragma unroll
      for (int k = 0; k < Dim / 16; ++k) {
        uint32_t r[4];
        load_matrices(keys + 32 * k, r);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint2 q = query(tile, k);
          mma_bf16((k & 1) != 0 ? odd[tile] : even[tile], r[0], r[1], r[2], r[3], q.x, q.y);
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < Dim / 16; k += 2) {
        uint32_t r[4], low[4], high[4];
        load_matrices(keys + 16 * k, r);
#pragma unroll
        for (int i = 0; i < 4; ++i) widen_fp8(r[i], low[i], high[i]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint2 first = query(tile, k), second = query(tile, k + 1);
          mma_f16(even[tile], low[0], low[1], high[0], high[1], first.x, first.y);
          mma_f16(odd[tile], low[2], low[3], high[2], high[3], second.x, second.y);
        }
      }
    }
  }

  template <Keys kKind>
  __device__ __forceinline__ void multiply_values(uint32_t matrix, int warp, int lane,
                                                  const uint2 (&weights)[kTiles], const KeyRange& stored) {
    const int t = lane & 3;
    const uint32_t mask0 = OneShare<L>::mask_of(warp, 2 * t, stored),
                   mask1 = OneShare<L>::mask_of(warp, 2 * t + 8, stored);
    const auto first = [&](uint32_t pair) { return kKind == Keys::Plain ? pair : pair & mask0; };
    const auto second = [&](uint32_t pair) { return kKind == Keys::Plain ? pair : pair & mask1; };
    const uint32_t rows = OneShare<L>::address_of(matrix, warp, (lane >> 4) * 8 + (lane & 7), lane >> 3 & 1);
#pragma unroll
    for (int i = 0; i < Dim * Bytes / 32; ++i) {
      uint32_t r[4];
      load_matrices_transposed(rows + 32 * i, r);
      if constexpr (Bytes == 2) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          mma_bf16(tiles[tile].values[i], first(r[0]), first(r[1]), second(r[2]), second(r[3]),
                   weights[tile].x, weights[tile].y);
      } else {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t even[2], odd[2];
          widen_fp8(__byte_perm(r[j], 0u, 0x3120), even[0], odd[0]);
          widen_fp8(__byte_perm(r[j + 2], 0u, 0x3120), even[1], odd[1]);
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile)
            mma_f16(tiles[tile].values[2 * i + j], first(even[0]), first(odd[0]), second(even[1]),
                    second(odd[1]), weights[tile].x, weights[tile].y);
        }
      }
    }
  }

  // The warp's 16 keys of unit `unit`.
  template <Keys kKind>
  __device__ __forceinline__ void add(const OneArguments& p, const Pack& pack, int unit, uint32_t stage,
                                      const uint2* queries, int warp, int lane) {
    float even[kTiles][4] = {}, odd[kTiles][4] = {};
    multiply_keys(stage, queries, warp, lane, even, odd);
    uint2 weights[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      KeyRange seen[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int position = pack.position + tile * tile_tokens(p) + tokens[h];
        seen[h] = {first_key(position, p.window) - unit * kKeys, position + 1 - unit * kKeys};
      }
      float s[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) s[j] = even[tile][j] + odd[tile][j];
      weights[tile] = tiles[tile].template weigh<kKind>(p, s, warp, seen, lane);
    }
    multiply_values<kKind>(
        stage + L::kMatrixBytes, warp, lane, weights,
        {first_key(pack.position, p.window) - unit * kKeys, pack.last() + 1 - unit * kKeys});
  }
};

template <class L>
__device__ __forceinline__ void store_tiles(const OneArguments& p, const Pack& pack, int head,
                                            PackedShare<L>& share, uint8_t* shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, each = tile_tokens(p);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile >= share.used) return;
    sync_warps();
    share.tiles[tile].merge_partial(reinterpret_cast<float*>(shared + L::kValues),
                                    reinterpret_cast<float*>(shared + L::kMaxima),
                                    reinterpret_cast<float*>(shared + L::kSums), warp, each * p.group, lane);
    sync_warps();
    for (int e = threadIdx.x * 4; e < each * p.group * L::kDim; e += kWarps * 32 * 4) {
      const int column = e / L::kDim, d = e % L::kDim, token = tile * each + column / p.group;
      if (token >= pack.count) break;
      const int query_head = head * p.group + column % p.group;
      store_result(p.out + (pack.token + token) * p.out_stride_n + query_head * p.out_stride_h + d,
                   merge_warps<L>(shared, column, d),
                   p.sinks != nullptr ? p.sinks[query_head] * kLog2E : -INFINITY);
    }
  }
}

// grid: (packs, kv heads), the heads of a pack together
template <class L>
__global__ void __launch_bounds__(kThreads, 2)
    packed_kernel(const __grid_constant__ OneArguments p, const int4* packs) {
  require_bulk_copies();
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t base = shared_address(shared), full = base + L::kBarriers, empty = full + 8 * L::kStages;
  const int head = static_cast<int>(blockIdx.x) % p.kv_heads;
  const int4 numbers = __ldg(packs + blockIdx.x / static_cast<unsigned>(p.kv_heads));
  const Pack pack{numbers.x, numbers.y, numbers.z, numbers.w};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < L::kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kWarps);
    }
    barriers_ready();
  }
  allow_dependents();
  __syncthreads();
  wait_for_producer();
  const int begin = first_key(pack.position, p.window) / kKeys, end = pack.last() / kKeys + 1;
  if (warp == kWarps) {
    OneProducer<L> producer(p, Ranges{}, shared);
    producer.turn_to(pack.last(), pack.row);
    for (int unit = begin; unit < end; ++unit) producer.send_unit(unit, head);
    return;
  }
  store_queries<L>(p, pack, head, shared);
  PackedShare<L> share;
  share.start(p, pack, head, lane);
  sync_warps();
  const auto* queries = reinterpret_cast<const uint2*>(shared + L::kQueries);
  const bool scores_plain = p.softcap == 0.0f && p.alibi == nullptr && p.scale > 0.0f;
  // Units of which all tokens see all keys.
  const int whole_from = (first_key(pack.last(), p.window) + kKeys - 1) / kKeys;
  const int whole_to = (pack.position + 1) / kKeys;
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = begin; unit < end; ++unit) {
    barrier_wait(full + 8 * stage, parity);
    const uint32_t at = base + stage * L::kStageBytes;
    if (scores_plain && unit >= whole_from && unit < whole_to) {
      share.template add<Keys::Plain>(p, pack, unit, at, queries, warp, lane);
    } else if (scores_plain) {
      share.template add<Keys::Masked>(p, pack, unit, at, queries, warp, lane);
    } else {
      share.template add<Keys::Any>(p, pack, unit, at, queries, warp, lane);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + 8 * stage);
    if (++stage == L::kStages) stage = 0, parity ^= 1u;
  }
  store_tiles<L>(p, pack, head, share, shared);
}

template <class L>
void launch_packed_of(const PackedAttentionParams& p, Stream stream) {
  static const cudaError_t attribute =
      cudaFuncSetAttribute(packed_kernel<L>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kShared);
  check_launch(attribute, "attention");
  DecodeAttentionParams one{};
  one.attention = p.attention;
  const Grid grid{dim3(static_cast<unsigned>(p.count * p.attention.kv_heads)), dim3(kThreads), L::kShared};
  launch("attention", packed_kernel<L>, grid, stream, one_arguments(one),
         reinterpret_cast<const int4*>(p.packs));
}

}  // namespace

int64_t packed_tokens(const AttentionParams& p) {
  return kTiles * (kColumns / (p.q.heads / p.kv_heads));
}

// Queries of heads of 256 elements have no room in shared memory, nor their values in registers.
bool packed_fits(const AttentionParams& p) {
  return one_fits(p) && p.k.dim <= 128;
}

void launch_packed(const PackedAttentionParams& p, Stream stream) {
  if (p.attention.k.type == DType::F8_E4M3) return launch_packed_of<PackedLayout<128, 1>>(p, stream);
  if (p.attention.k.dim == 64) return launch_packed_of<PackedLayout<64, 2>>(p, stream);
  launch_packed_of<PackedLayout<128, 2>>(p, stream);
}

}  // namespace sluice::kernels::cuda
