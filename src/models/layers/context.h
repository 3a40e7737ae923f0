// Attention where the ranks of a group share the KV cache by tokens (context parallel). Rank r of N keeps position p of a
// sequence where p % N == r, as position p / N: a block of the KV manager is N smaller blocks of the same number, one on each
// rank. Queries, keys and values of all ranks' tokens go to all of them; each attends to the keys that it keeps, and what
// they give is merged by log-sum-exp, in the order of ranks, on the rank that has the token.
//
// Keys of indexers and recurrent states are kept whole by all of them: what goes into them of all ranks' tokens is gathered.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/partial_attention.h"
#include "models/decoder/scratch.h"
#include "models/model_group.h"

namespace sluice::models {

// Blocks of positions that the own rows attend to, as kernels::ChosenKeys has them; empty: they attend to all that they see.
struct ChosenBlocks {
  TensorView blocks;  // I32 [own rows, choices, most]
  int size = 1;
};

class ContextShare {
 public:
  // REQUIRES: the back-end has PartialAttention.
  ContextShare(ModelGroup& group, kernels::Backend& backend, Scratch& scratch);

  // Start of a step, of whose rows `own` are this rank's; the batch's arrays stay valid.
  void begin(const kernels::RaggedBatch& batch, Range own);
  // The own rows, with their positions in the sequences.
  const kernels::RaggedBatch& own_batch() const { return own_batch_; }
  // The rows of all ranks.
  const kernels::RaggedBatch& step_batch() const { return step_batch_; }
  TensorView own_rows(TensorView all) const { return all.rows(own_.begin, own_.end); }
  // Of all ranks, [rows of the step, width], from the own ones. Valid until the next call.
  TensorView gathered(TensorView own);
  // out[own rows, heads, value_dim] from qkv[own rows, queries, keys and values], normed and rotated. Keys and values, or keys
  // alone where those hold the values, are stored; without any, those that are stored already are read.
  void attend(TensorView out, TensorView qkv, const kernels::PagedKv& kv, kernels::AttentionShape shape,
              const ChosenBlocks& chosen = {});

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
  // to = attention of all rows to the keys that are kept here.
  void attend_part(const kernels::PartialAttended& to, TensorView q, const kernels::PagedKv& kv,
                   kernels::AttentionShape shape);
  // As that, to those of the blocks; lists f32 [rows, choices * most].
  void attend_chosen(const kernels::PartialAttended& to, TensorView q, const kernels::ChosenKeys& keys,
                     TensorView lists, const kernels::AttentionShape& shape);
  // The blocks of a row that hold positions that are kept here, counted as those are: out[most]. Returns how many positions.
  int64_t kept_of(int32_t* out, const float* list, int64_t row, const kernels::ChosenKeys& keys) const;

  ModelGroup& group_;
  const Share share_;
  kernels::Backend& backend_;
  Scratch& scratch_;
  kernels::PartialAttention* attention_;
  Range own_;
  kernels::RaggedBatch own_batch_;
  std::vector<int32_t> own_begin_;
  std::vector<int32_t>
      last_kept_;  // [n] of the positions that are kept here, the last that each token sees; -1: none
  kernels::RaggedBatch seen_batch_;
  kernels::RaggedBatch step_batch_;
  std::deque<Window> windows_;                                    // of this step's layers so far
  std::vector<int32_t> kept_rows_, kept_positions_, kept_begin_;  // tokens whose keys are kept here
  kernels::RaggedBatch kept_batch_;
  std::vector<float> slopes_;  // of a layer with biases of positions
  std::vector<int32_t>
      chosen_seen_;  // [n] the last chosen key of each token, counted among those that are kept here
};

}  // namespace sluice::models
