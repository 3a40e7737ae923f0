// How far two models, or two ways to run one, are from each other on a text.
#pragma once

#include <functional>
#include <span>

#include "lab/perplexity.h"

namespace sluice::lab {

// A mean with its standard error.
struct Mean {
  double sum = 0, sum_squares = 0;
  int64_t count = 0;

  void add(double value);
  double value() const;
  double error() const;
};

struct Comparison {
  Perplexity first, second;  // of the same tokens
  Mean divergence;           // KL of the second's distribution from the first's, in nats
  Mean same_best;            // 1 where both give the same token the largest logit
  Mean log_ratio;            // of the probabilities of the tokens that follow, first to second
  double largest_divergence = 0;
};

// One side: a loaded model and how its KV is kept.
struct Side {
  const models::Model& model;
  DType kv_type = DType::F16;
};

// The contexts and positions of measure_perplexity. `options.kv_type` is not read. Fails where the vocabularies differ in size, or
// as measure_perplexity does.
Result<Comparison> compare_models(const Side& first, const Side& second, std::span<const Token> text,
                                  const PerplexityOptions& options,
                                  const std::function<void(const Comparison&)>& done);

}  // namespace sluice::lab
