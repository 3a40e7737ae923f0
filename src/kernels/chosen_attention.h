// Attention to some of the positions before a token, chosen by scores of small keys of their own (DeepSeek's lightning
// indexer), for back-ends that have it.
#pragma once

#include "kernels/backend.h"

namespace sluice::kernels {

// What a step's tokens choose by.
struct IndexQueries {
  TensorView q;        // [n, heads, dim], rotated
  TensorView weights;  // f32 [n, heads]
};

// Keys of which each token of the step attends to those in its row of `positions`, I32 [n, most].
struct ChosenKeys {
  const PagedKv& kv;
  TensorView positions;
};

class ChosenAttention {
 public:
  virtual ~ChosenAttention() = default;
  // chosen I32 [n, most]: the positions p up to RaggedBatch::last_seen of the token whose scores
  // sum over heads of weights[h] · max(0, q[h] · key[p])
  // are largest, ascending; of equal scores the earlier position is chosen. A token that sees no more than `most` positions
  // chooses all of them, the rest of its row is left as it is. `keys`: one head of keys; its values are not read.
  virtual void choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                                const RaggedBatch& batch) = 0;
  // As Backend::attend over these positions alone, and bit by bit the same where they are all that the token sees.
  // REQUIRES: no window and no position biases.
  virtual void attend_chosen(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                             const AttentionShape& shape) = 0;
};

// Positions in the token's row of `chosen`.
inline int64_t chosen_count(const RaggedBatch& batch, int64_t token, const TensorView& chosen) {
  const int64_t seen = batch.last_seen(token) + 1;
  return seen < chosen.dim(1) ? seen : chosen.dim(1);
}

// The positions of the `most` best of scores[count], ascending; of equal scores the earlier one. NaN is above all numbers.
void best_positions(std::span<int32_t> out, std::span<const float> scores);

}  // namespace sluice::kernels
