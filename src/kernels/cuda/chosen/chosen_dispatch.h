// Attention to chosen positions as the back-end has it.
#pragma once

#include "kernels/chosen_attention.h"
#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/chosen/chosen_params.h"

namespace sluice::kernels::cuda {

class ChosenDispatch {
 public:
  // The others outlive this.
  ChosenDispatch(StepContext& step, AttentionDispatch& attention) : step_(step), attention_(attention) {}

  void choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                        const RaggedBatch& batch);
  void choose_blocks(TensorView chosen, TensorView q, const BlockChoice& choice, const PagedKv& keys,
                     const RaggedBatch& batch);
  void attend(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
              const AttentionShape& shape);

 private:
  // chosen: [n, choices, most]; weights: empty where each head chooses.
  void choose(TensorView chosen, const IndexQueries& queries, const BlockChoice& choice, const PagedKv& keys,
              const RaggedBatch& batch);

  StepContext& step_;
  AttentionDispatch& attention_;
  Scratch ranks_;
  Scratch partial_;  // results of parts of lists
};

}  // namespace sluice::kernels::cuda
