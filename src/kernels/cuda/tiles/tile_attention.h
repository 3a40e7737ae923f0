// Attention on tensor cores for what the kernels of flash.h do not take: head sizes up to 256 of every multiple of 8, keys
// and values of different sizes, any number of query heads to a KV head, sinks, alibi, chunks, tokens that see further than
// themselves, caches of one and two bytes.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

struct TileAttentionParams {
  AttentionParams attention;
  const int32_t*
      query_begin;  // device [sequences + 1]: first token of each sequence, counted from those of q
  float* partial;   // tile_partial_bytes(); null: splits is 1
  int32_t sequences;
  int32_t splits;  // parts of the keys, side by side
  int32_t few;     // tile_few(): warps share rows
};
bool tile_fits(const AttentionParams&);
// Whether every sequence has one token, whose query heads of a KV head fit into 16 rows.
bool tile_few(const AttentionParams&, int sequences);
// Into how many parts the keys are cut, so that all multiprocessors have work. Does not depend on lengths of contexts.
int tile_splits(const AttentionParams&, int sequences, int processors);
size_t tile_partial_bytes(const AttentionParams&, int splits);
// REQUIRES: tile_fits(params.attention). With one split and without `few` the bits of a token do not depend on the others of the step.
void launch_tile_attention(const TileAttentionParams&, Stream);

}  // namespace sluice::kernels::cuda
