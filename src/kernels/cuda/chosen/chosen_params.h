// Attention to chosen positions: scores of index keys, the choice of the best, and attention to them.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

// Scores as ranks: numbers that are larger for a larger score, NaN above all; 0 is below every score.
struct IndexScoresParams {
  uint32_t* ranks;  // [tokens, columns], or [tokens, heads, columns] where heads choose blocks
  int64_t columns;
  View q;  // [n, heads, dim]
  const float*
      weights;  // [n, heads]: scores are sums over heads; null: each head has the largest of every block
  int64_t weights_stride;
  CacheView keys;
  TableView table;
  int64_t first, count;  // tokens of the step whose scores are made
  int64_t all;           // tokens that see no more positions choose them all, without scores
  int32_t size;          // positions of a block
  int32_t together;      // neighbouring tokens that a block of threads takes
};
void launch_index_scores(const IndexScoresParams&, Stream);

// The `local` last blocks (of `size` positions) that a token sees, and those of the best ranks, ascending.
struct ChooseParams {
  int32_t* chosen;  // [n, heads, most]
  int64_t stride_n, stride_h;
  const uint32_t* ranks;  // [count, heads, columns]
  int64_t columns;
  TableView table;
  int64_t first, count;  // tokens
  int32_t heads, most, size, local;
};
void launch_choose(const ChooseParams&, Stream);

// A part is this many places in the list of a token's positions: a fixed number, so that a result does not depend on the
// batch.
inline constexpr int kChosenPart = 256;

struct ChosenAttentionParams {
  View out, q;
  CacheView k, v;
  TableView table;
  const float* sinks;     // [heads] or null
  const int32_t* blocks;  // [n, choices, most]
  int64_t stride_n, stride_c;
  float*
      partial;  // [count, heads, parts, value_dim + 2]: weighted values, their largest score and sum of weights
  int64_t first, count;  // tokens
  int64_t kv_heads;
  float scale, softcap;
  int32_t choices, most, size, parts;
};
// Values are 512 numbers wide at most.
void launch_chosen_attention(const ChosenAttentionParams&, Stream);

}  // namespace sluice::kernels::cuda
