// States of sequences in host memory: what back-ends there share of the recurrent operations.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/recurrent.h"

namespace sluice::kernels {

// Elements [begin, begin + size) of every slot.
struct StatePiece {
  int64_t begin = 0;
  int64_t size = 0;
};

// Brings a piece of a sequence's state over the tokens of the step: calls run(state, first, count) for the sequence's tokens
// [first, first + count) between two saves, and saves.
void advance_state(const TensorView& states, const StateBatch& batch, int sequence, StatePiece piece,
                   FunctionRef<void(float*, int64_t, int64_t)> run);

// The rows that a convolution reads: x of the step, and behind it what the state holds of the tokens before.
class ConvRows {
 public:
  ConvRows(TensorView x, const CausalConv& conv, TensorView states, const StateBatch& batch)
      : x_(x), conv_(conv), states_(states), batch_(batch) {}

  // Of the sequence's token `index` in the step; negative: before it. Null: zeros.
  const float* row(int sequence, int64_t index) const;
  // Leaves the states of every sequence.
  void save() const;

 private:
  TensorView x_;
  const CausalConv& conv_;
  TensorView states_;
  const StateBatch& batch_;
};

// Sequence of each token of the step.
std::vector<int> sequences_of_tokens(const StateBatch& batch);

}  // namespace sluice::kernels
