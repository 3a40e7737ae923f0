// Attention over some of the keys of a sequence, for back-ends whose ranks share a KV cache by tokens.
#pragma once

#include "kernels/backend.h"
#include "kernels/chosen_attention.h"

namespace sluice::kernels {

struct PartialAttended {
  TensorView out;  // [n, heads, value_dim], of softmax over the keys that were seen
  TensorView lse;  // f32 [n, heads]: log of the sum of exp of their scores
};

class PartialAttention {
 public:
  virtual ~PartialAttention() = default;
  // As Backend::attend. A token at position -1 sees no key: its out is 0 and its lse minus infinity.
  virtual void attend_part(const PartialAttended& to, TensorView q, const PagedKv& kv,
                           const RaggedBatch& batch, const AttentionShape& shape) = 0;
  // As ChosenAttention::attend_chosen. A token with -1 in RaggedBatch::seen sees no key; the first of its blocks is one that
  // the sequence has.
  virtual void attend_chosen_part(const PartialAttended& to, TensorView q, const ChosenKeys& keys,
                                  const RaggedBatch& batch, const AttentionShape& shape) = 0;
};

}  // namespace sluice::kernels
