// Attention to some of the positions before a token, chosen by scores of small keys of their own (DeepSeek's lightning
// indexer, MiniMax's blocks), for back-ends that have it.
#pragma once

#include <algorithm>

#include "kernels/backend.h"

namespace sluice::kernels {

// What a step's tokens choose by.
struct IndexQueries {
  TensorView q;        // [n, heads, dim], rotated
  TensorView weights;  // f32 [n, heads]
};

// How heads choose blocks: block b holds the positions p with p / size == b.
struct BlockChoice {
  int size = 1;
  int local = 1;  // so many last ones are always chosen; at most as many as there are in a row of choices
};

// Keys of which each token of the step attends to those in its rows of `blocks`.
struct ChosenKeys {
  const PagedKv& kv;
  TensorView
      blocks;    // I32 [n, choices, most], ascending; kv_heads / choices neighbouring kv heads share a choice
  int size = 1;  // positions of a block; those that the token does not see yet are left out
};

class ChosenAttention {
 public:
  virtual ~ChosenAttention() = default;
  // Whether steps in which no token sees more than it would choose may be attended to as a whole. False: results would depend on
  // which tokens run along, and must not.
  virtual bool attends_alike() const { return true; }
  // chosen I32 [n, most]: the positions p up to RaggedBatch::last_seen of the token whose scores
  // sum over heads of weights[h] · max(0, q[h] · key[p])
  // are largest, ascending; of equal scores the earlier position is chosen. A token that sees no more than `most` positions
  // chooses all of them, the rest of its row is left as it is. `keys`: one head of keys; its values are not read.
  virtual void choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                                const RaggedBatch& batch) = 0;
  // chosen I32 [n, heads, most]: for each head of q[n, heads, dim], which is rotated, the local blocks and those whose
  // largest q · key of the positions that the token sees is largest, ascending; of equal ones the earlier block is chosen. As
  // choose_positions else.
  virtual void choose_blocks(TensorView chosen, TensorView q, const BlockChoice& choice, const PagedKv& keys,
                             const RaggedBatch& batch) = 0;
  // As Backend::attend over these positions alone, in host memory bit by bit the same where they are all that the token sees.
  // The last block that a token sees is among its chosen ones.
  // REQUIRES: no window and no position biases.
  virtual void attend_chosen(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                             const AttentionShape& shape) = 0;
};

// The keys that positions are chosen by, as a cache of their own.
inline PagedKv index_keys(const PagedKv& kv) {
  return {.k = kv.index,
          .v = kv.index,
          .k_scales = kv.index_scales,
          .v_scales = kv.index_scales,
          .table = kv.table};
}

// Blocks in a row of `most` that the token chooses.
inline int64_t chosen_blocks(const RaggedBatch& batch, int64_t token, int64_t most, int64_t size = 1) {
  return std::min(batch.last_seen(token) / size + 1, most);
}

// Positions in these blocks.
inline int64_t chosen_count(const RaggedBatch& batch, int64_t token, int64_t most, int64_t size = 1) {
  return (chosen_blocks(batch, token, most, size) - 1) * size + batch.last_seen(token) % size + 1;
}

// The positions of the `most` best of scores[count], ascending; of equal scores the earlier one. NaN is above all numbers.
void best_positions(std::span<int32_t> out, std::span<const float> scores);

// The same of blocks, whose `local` last ones are among them.
void best_blocks(std::span<int32_t> out, std::span<const float> scores, int64_t local);

// The larger of two scores, as best_positions orders them.
inline float larger_score(float a, float b) {
  return a != a || a > b ? a : b;
}

}  // namespace sluice::kernels
