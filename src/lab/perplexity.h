// How well a model predicts a text: the measure of what quantisation and kernels cost in quality.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "models/model.h"

namespace sluice::lab {

struct PerplexityOptions {
  int context = 512;           // tokens of one context; the second half is scored
  int contexts = 0;            // that are run; 0: all that the text fills
  std::optional<Token> first;  // takes the place of the first token of each context
  int block_size = 16;
  DType kv_type = DType::F16;
};

struct Perplexity {
  int contexts = 0;
  int64_t scored = 0;  // tokens
  double sum = 0;      // of -log of the probability of each
  double sum_squares = 0;
  double seconds = 0;

  void add(double cost);  // of one token
  double value() const;
  double error() const;  // one standard error of value()
};

// Contexts follow each other without overlap, and tokens that fill no context are left out. In a context of n tokens, those
// at n / 2 + 1 and behind it are scored, each with all before it in view. `done` sees the sums after each context. Fails
// where the text fills no context, or one is longer than the model's.
Result<Perplexity> measure_perplexity(const models::Model& model, std::span<const Token> text,
                                      const PerplexityOptions& options,
                                      const std::function<void(const Perplexity&)>& done);

}  // namespace sluice::lab
