// Positions, the KV cache and attention over it.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

struct AnglesParams {
  float* angles;                   // [n, pairs, 2]
  const int32_t* positions;        // [n], or [kRopeSections, n] where pairs have sections
  const int32_t* sections;         // [pairs] of the pairs; null: one for all
  const int32_t* rows;             // [n] of the frequencies; null: row 0 for all
  const float* inverse_frequency;  // [rows, pairs]
  int64_t n, pairs;
  float magnitude, magnitude_beyond;  // of row 0, of the others
};
void launch_angles(const AnglesParams&, Stream);

struct RopeParams {
  View x;
  const float* angles;  // [n, pairs, 2]
  int64_t pairs;
  int64_t angle_stride;
  int32_t interleaved;
};
void launch_rope(const RopeParams&, Stream);

// Where the tokens of a step lie: the block of (sequence s, position p) is blocks[row_begin[s] + p /
// block_size].
struct TableView {
  const int32_t* row_begin;  // [sequences + 1]
  const int32_t* blocks;
  const int32_t* positions;  // [n]
  const int32_t* seen;       // [n] last positions that tokens see; null: their own
  const int32_t* sequence;   // [n]
  int32_t block_size;
};

// A layer's keys or values: [blocks, block_size, kv_heads, dim], strides in elements. F8_E4M3 has no scales: 448 is the
// largest it keeps.
struct CacheView {
  void* data;
  float* scales;  // I8 only
  int64_t stride_block, stride_slot, stride_head;
  int64_t scale_stride_block, scale_stride_slot;
  int64_t blocks, dim;
  DType type;
};

struct WriteKvParams {
  CacheView k, v;  // v.data null: only k is stored
  View key, value;
  TableView table;
};
void launch_write_kv(const WriteKvParams&, Stream);

// Rotates q in place; rotates k and stores it with v. Normed: every head of q and k is rms-normed first.
// REQUIRES: rope_write_fits(params).
struct RopeWriteParams {
  RopeParams rope;  // x: q
  WriteKvParams write;
  const float *q_gain, *k_gain;  // [dim] or null
  float eps;
  int32_t normed;
};
bool rope_write_fits(const RopeWriteParams&);
void launch_rope_write(const RopeWriteParams&, Stream);
// The same for heads of 128 elements that are rotated whole, as halves, over a bf16 cache.
// REQUIRES: rope_write_fits(params) && rope_heads_fit(params).
bool rope_heads_fit(const RopeWriteParams&);
void launch_rope_heads(const RopeWriteParams&, Stream);

struct CopyBlocksParams {
  void* data;
  int64_t block_bytes;
  const int32_t* moves;  // [count, 2] from, to
  int64_t count;
};
void launch_copy_blocks(const CopyBlocksParams&, Stream);

struct AttentionParams {
  View out, q;
  CacheView k, v;
  TableView table;
  const float* sinks;  // [heads] or null
  const float* alibi;  // [heads] or null
  int64_t kv_heads;
  float scale, softcap;
  int32_t window;
  int32_t chunked;  // a token at p sees [p - p % window, p] instead
};
void launch_attention(const AttentionParams&, Stream);

}  // namespace sluice::kernels::cuda
