// How the work of a step is shared out over the blocks: rows of matrices evenly, in groups of eight, and the context in tiles
// of kTile keys, by the lengths that the device finds.
#pragma once

#include "kernels/cuda/stack/stack_ring.cuh"

namespace sluice::kernels::cuda::stack {

// What a block has of `groups`.
struct Share {
  int first, count;
  __device__ __forceinline__ static Share of(uint32_t groups) {
    const uint32_t block = blockIdx.x, first = block * groups / gridDim.x;
    return {static_cast<int>(first), static_cast<int>((block + 1) * groups / gridDim.x - first)};
  }
};

// Aligned: each (token, kv head) has `splits` blocks of its own. Else blocks have equal runs of all tiles, which is better
// where contexts differ much.
struct Plan {
  int tiles[kStackTokens], contexts[kStackTokens];
  int rows[kStackTokens];  // where a token's blocks begin in the table
  int tokens, kv_heads, splits, blocks, total;
  bool aligned;
  bool paired;  // the two blocks of a (token, kv head) are a cluster

  // What the step's arrays say of one token: a chain of reads of the L2, so a thread for each, once.
  __device__ void take(const StackParams& p, int token) {
    contexts[token] = p.table.positions[token] + 1;
    rows[token] = p.table.row_begin[p.table.sequence[token]];
  }
  // When all have been taken.
  __device__ void make(const StackParams& p) {
    const int pairs = p.tokens * p.kv_heads, grid = static_cast<int>(gridDim.x);
    tokens = p.tokens, kv_heads = p.kv_heads, splits = grid / pairs, total = 0;
    int most = 0;
    for (int i = 0; i < tokens; ++i) {
      tiles[i] = (contexts[i] + kTile - 1) / kTile;
      total += tiles[i] * kv_heads;
      const int parts = max(1, min(splits, tiles[i]));
      most = max(most, (tiles[i] + parts - 1) / parts);
    }
    const int even = (total + grid - 1) / grid;
    aligned = splits > 0 && most * 4 <= even * 5;
    blocks = aligned ? pairs * splits : min(grid, total);
    paired = aligned && splits == 2 && blocks_of_cluster() == 2 &&
             p.heads / p.kv_heads * p.head_dim / 2 <= kWarps * 32;
  }
  // First tile of a block, of all; the last block that starts at or before a tile.
  __device__ __forceinline__ int start(int block) const {
    return static_cast<int>(static_cast<uint32_t>(block) * static_cast<uint32_t>(total) /
                            static_cast<uint32_t>(blocks));
  }
  __device__ __forceinline__ int block_of(int tile) const {
    return static_cast<int>(((static_cast<uint32_t>(tile) + 1) * static_cast<uint32_t>(blocks) - 1) /
                            static_cast<uint32_t>(total));
  }
};

// What a block has of one pair: tiles [tile, end) of `tiles`. Where several blocks have some, `part` is the block's number
// among them. A block has at most two such pairs, its first and its last: `slot` says where its part lies.
struct Segment {
  int token, head, tile, end, tiles;
  int slot, first_slot;
  int first_block, parts, part;
};

struct SegmentWalk {
  int at, end;

  __device__ __forceinline__ explicit SegmentWalk(const Plan& p) {
    const int block = static_cast<int>(blockIdx.x);
    const bool any = block < p.blocks;
    at = any && !p.aligned ? p.start(block) : 0;
    end = !any ? 0 : p.aligned ? 1 : p.start(block + 1);
  }
  __device__ __forceinline__ bool next(const Plan& p, Segment& s) {
    if (at >= end) return false;
    return p.aligned ? next_aligned(p, s) : next_run(p, s);
  }

 private:
  __device__ __forceinline__ bool next_aligned(const Plan& p, Segment& s) {
    at = end;
    const int block = static_cast<int>(blockIdx.x), pair = block / p.splits;
    s.token = pair / p.kv_heads, s.head = pair % p.kv_heads, s.tiles = p.tiles[s.token];
    s.parts = min(p.splits, s.tiles), s.part = block % p.splits, s.first_block = pair * p.splits;
    s.slot = s.first_slot = 0;
    s.tile = s.part * s.tiles / s.parts, s.end = (s.part + 1) * s.tiles / s.parts;
    return s.part < s.parts;
  }
  __device__ __forceinline__ bool next_run(const Plan& p, Segment& s) {
    int inside = at;
    s.token = 0;
#pragma unroll 1
    while (inside >= p.tiles[s.token] * p.kv_heads) inside -= p.tiles[s.token] * p.kv_heads, ++s.token;
    s.tiles = p.tiles[s.token], s.head = inside / s.tiles, s.tile = inside % s.tiles;
    s.end = min(s.tiles, s.tile + end - at);
    const int begin = at - s.tile;
    s.first_block = p.block_of(begin);
    s.parts = p.block_of(begin + s.tiles - 1) - s.first_block + 1;
    s.part = static_cast<int>(blockIdx.x) - s.first_block;
    s.first_slot = p.start(s.first_block) >= begin ? 0 : 1;
    s.slot = s.part == 0 ? s.first_slot : 0;
    at += s.end - s.tile;
    return true;
  }
};

}  // namespace sluice::kernels::cuda::stack
