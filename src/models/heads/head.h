// A head that guesses what follows a model's tokens, from the model's hidden states: trained with the model and kept beside
// its weights (multi-token prediction, NEXTN), or trained for it later and kept in a folder of its own (EAGLE-3).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/decoder/scratch.h"
#include "models/model.h"

namespace sluice::models {

// With h[i] the hidden state that the model samples token i + 1 from, and e the embedding of that token, a head for
// multi-token prediction runs its layers on fusion([token_norm(e), hidden_norm(h[i])]) at position i. The hidden state behind
// them gives the logits of token i + 2, and stands for h[i + 1] where the model has not run that position yet.
//
// That of EAGLE-3 runs them on g[i] beside e (Wiring::BesideTokens), where g[i] = fusion([what enters three of the model's
// layers]); what leaves its layer, before the norm, stands for g[i + 1].
struct Head {
  enum class Kind : uint8_t { Mtp, Eagle3 };
  Kind kind = Kind::Mtp;
  std::unique_ptr<Model> model;  // its layers; embedding table, output matrix and ropes may be the target's
  Weight fusion;                 // [dim, 2 dim]; EAGLE-3: [dim, taps * dim of the target]
  // Of multi-token prediction.
  Norm token_norm, hidden_norm;
  bool hidden_first = false;  // the fused halves stand the other way round
  // Of EAGLE-3.
  std::vector<int> taps;      // layers of the target whose inputs it reads
  std::vector<Token> tokens;  // of the target, per row of the output matrix; empty: the same
};

// The head among the target's own files; NotFound where they have none. The target outlives it.
Result<Head> load_mtp_head(const Model& target);
// The head in a folder with config.json and safetensors.
Result<Head> load_eagle3_head(const std::string& folder, const Model& target);

// Makes what the head's layers read. The head outlives it.
class HeadInputs {
 public:
  explicit HeadInputs(const Head& head) : head_(head), scratch_(*head.model->backend) {}

  const Head& head() const { return head_; }
  // [n, dim] for tokens [n] and the hidden states [n, dim] before them, activation type. Valid until the next call.
  TensorView make(std::span<const Token> tokens, TensorView hidden);
  // g of EAGLE-3, [n, dim], from what was tapped, [n, taps * dim]. Valid until the next call.
  TensorView fuse(TensorView tapped);

 private:
  // f32 rows of the host where the head's layers run, in activation type there; on a CPU the same rows.
  TensorView on_device(TensorView host);

  const Head& head_;
  Scratch scratch_;
  kernels::Memory uploaded_;
  std::vector<uint16_t> narrow_;  // rows as BF16
};

}  // namespace sluice::models
