// The fast attention: FlashInfer's tensor-core kernel over the paged cache, for prefill, decode and anything
// between. Heads of 64, 128 or 256 elements, bf16 (128: fp8 too), optional window and softcap. A step makes one plan per
// kind of layer on the host (which block does what) and all layers of that kind use it.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

struct FlashWorkspace {
  void* partial;  // device: results of the parts of a split sequence
  size_t partial_bytes;
  void* schedule;  // device: the plan's arrays
  void* staging;   // pinned host memory of the same size
  size_t schedule_bytes;
};

struct FlashShape {
  int32_t heads, kv_heads, dim, block_size, window;  // window 0: none
  int32_t cache_bytes;                               // of an element
  friend bool operator==(const FlashShape&, const FlashShape&) = default;
};

struct FlashBatch {
  const int32_t* query_begin;  // host [sequences + 1]
  const int32_t* row_begin;    // host [sequences + 1] first entry of each sequence's row of the block table
  const int32_t* lengths;      // host [sequences] tokens of context, the new ones among them
  int32_t tokens, sequences;
};

struct FlashPlan {
  int64_t fields[15];
};

bool flash_fits(const AttentionParams&);
// Upper bound of the bytes that a plan puts at FlashWorkspace::partial.
size_t flash_partial_bytes(const FlashShape&, int processors);
// Makes the plan and starts its upload. `replayable`: the launch will be recorded, so its grid must not
// depend on the lengths of the contexts.
FlashPlan make_flash_plan(const FlashWorkspace&, const FlashShape&, const FlashBatch&, bool replayable,
                          Stream);

struct FlashParams {
  AttentionParams attention;
  FlashPlan plan;
  void* partial;
  void* schedule;
  const int32_t* query_begin;  // device [sequences + 1]
  const int32_t* last_length;  // device [sequences] tokens in the last block
  int32_t sequences;
};
void launch_flash(const FlashParams&, Stream);

// The same on Hopper's own matrix instructions, for steps with many new tokens per sequence.
bool hopper_fits(const AttentionParams&, int64_t sequences);
size_t hopper_schedule_bytes(const FlashShape&, int64_t tokens, int64_t sequences, int64_t processors);
FlashPlan make_hopper_plan(const FlashWorkspace&, const FlashShape&, const FlashBatch&, Stream);
void launch_hopper(const FlashParams&, Stream);
void launch_hopper_256(const FlashParams&, Stream);

// Steps with one new token for every sequence, in that order. The workspace belongs to the back-end: zero before its
// first use, and left so.
struct DecodeAttentionParams {
  AttentionParams attention;
  void* workspace;  // decode_workspace_bytes()
  const int32_t*
      plan;  // of plan_decode_attention() for one_blocks() blocks, on the device, at a multiple of 16 bytes
  int32_t ahead;  // whether earlier steps wrote all keys of earlier positions
  int32_t few;    // launch_few only, which needs neither workspace nor plan: few_blocks()
};
// Blocks to share out one kv head of one token, such that all run at a time; 0: there are too many of them. REQUIRES:
// one_fits(params).
int few_blocks(const AttentionParams&);
void launch_few(const DecodeAttentionParams&, Stream);
int one_blocks();
inline constexpr int64_t kMaxKvHeads = 128;
size_t decode_workspace_bytes();
bool one_fits(const AttentionParams&);
void launch_one(const DecodeAttentionParams&, Stream);

// One translation unit per head size and type of the cache.
void launch_flash_64(const FlashParams&, Stream);
void launch_flash_128(const FlashParams&, Stream);
void launch_flash_256(const FlashParams&, Stream);
void launch_flash_128_fp8(const FlashParams&, Stream);

}  // namespace sluice::kernels::cuda
