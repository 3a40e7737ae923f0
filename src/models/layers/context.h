// Attention where the ranks of a group share the KV cache by tokens (context parallel). Rank r of N keeps position p of a
// sequence where p % N == r, as position p / N: a block of the KV manager is N smaller blocks of the same number, one on each
// rank. Queries, keys and values of all ranks' tokens go to all of them; each attends to the keys that it keeps, and what
// they give is merged by log-sum-exp, in the order of ranks, on the rank that has the token.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/partial_attention.h"
#include "models/model_group.h"
#include "models/scratch.h"

namespace sluice::models {

class ContextShare {
 public:
  // REQUIRES: the back-end has PartialAttention.
  ContextShare(ModelGroup& group, kernels::Backend& backend, Scratch& scratch);

  // Start of a step, of whose rows `own` are this rank's; the batch's arrays stay valid.
  void begin(const kernels::RaggedBatch& batch, Range own);
  // The positions of the own rows; nothing else of a batch.
  const kernels::RaggedBatch& own_batch() const { return own_batch_; }
  // out[own rows, heads, value_dim] from qkv[own rows, queries, keys and values], normed and rotated. Keys and values, or keys
  // alone where those hold the values, are stored; without any, those that are stored already are read.
  void attend(TensorView out, TensorView qkv, const kernels::PagedKv& kv, kernels::AttentionShape shape);

 private:
  // Which of the keys that are kept here the step's tokens see in a layer with this window; shape gets the window by which
  // attention finds the first of them.
  const kernels::RaggedBatch& seen_by(kernels::AttentionShape& shape);
  struct Window {
    int length = 0;
    bool chunked = false;
    std::vector<int32_t> first, last;  // [n]
    kernels::RaggedBatch batch;
  };
  void store(TensorView all, const kernels::PagedKv& kv, const kernels::AttentionShape& shape);

  ModelGroup& group_;
  const Share share_;
  kernels::Backend& backend_;
  Scratch& scratch_;
  kernels::PartialAttention* attention_;
  Range own_;
  kernels::RaggedBatch own_batch_;
  std::vector<int32_t>
      last_kept_;  // [n] of the positions that are kept here, the last that each token sees; -1: none
  kernels::RaggedBatch seen_batch_;
  kernels::RaggedBatch step_batch_;
  std::deque<Window> windows_;                                    // of this step's layers so far
  std::vector<int32_t> kept_rows_, kept_positions_, kept_begin_;  // tokens whose keys are kept here
  kernels::RaggedBatch kept_batch_;
};

}  // namespace sluice::models
