// The one decoder: runs a step of any ModelSpec on any back-end.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "models/scratch.h"
#include "models/spec.h"
#include "models/weights.h"

namespace sluice::models {

struct StepInput {
  std::span<const Token> tokens;         // [n]; each < vocab
  const kernels::RaggedBatch& batch;     // of the same n tokens
  std::span<const kernels::PagedKv> kv;  // per layer; a layer that reads another's KV has that one's
  std::span<const int32_t> logit_rows;   // tokens of the step whose logits are wanted, ascending
};

struct StepOutput {
  TensorView logits;  // [logit_rows, vocab], activation type
  TensorView hidden;  // [logit_rows, dim], after the last norm
};

// Holds references: spec, weights and back-end outlive it. One step at a time.
class Decoder {
 public:
  Decoder(const ModelSpec& spec, const ModelWeights& weights, kernels::Backend& backend);

  // The result is valid until the next call. With no logit rows both views are empty.
  StepOutput forward(const StepInput& input);

 private:
  void embed(const StepInput& input, TensorView x);
  void run_layer(size_t index, const StepInput& input, TensorView x);
  void norm(TensorView out, TensorView x, const Norm& weights);
  StepOutput head(const StepInput& input, TensorView x);

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  kernels::Backend& backend_;
  Scratch scratch_;
  std::vector<TensorView> angles_;  // per rope, of the step's tokens
};

}  // namespace sluice::models
