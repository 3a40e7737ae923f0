// The two decoding methods that contrast: contrastive search (Su et al., 2022), which contrasts a candidate
// with the context's hidden states, and contrastive decoding (Li et al., 2022; O'Brien and Lewis, 2023),
// which contrasts a model with a weaker one.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "request/sampling_params.h"

namespace sluice::sampling {

struct ContrastiveCandidates {
  std::span<const float> probabilities;  // [k]
  std::span<const float> hidden;         // [k, dim]: last hidden state with the candidate appended
  std::span<const float> context;        // [tokens, dim]: last hidden states of prompt and output
};

// The index of the candidate v with the greatest
//   (1 - alpha) * p(v) - alpha * max over context tokens j of cos(h_v, h_j);
// the first of equals. A score that is not a number is an error. A zero vector has cosine 0 to everything.
Result<size_t> select_contrastive(const ContrastiveCandidates& candidates, double alpha);

// Turns the expert's row into (1 + beta) * expert - beta * amateur where expert >= log(alpha) + max(expert),
// and -Inf elsewhere. An error where the widths differ, a row has NaN or +Inf, or the amateur's is -Inf
// throughout; a token that the amateur masks has the amateur's least logit instead.
// The combined row takes the place of the model's: tokens are sampled from it and log-probabilities are of it.
Status combine_contrastive(std::span<float> expert, std::span<const float> amateur,
                           const request::ContrastiveDecoding& method);

}  // namespace sluice::sampling
