// Log-probabilities as OpenAI and vLLM report them: the log-softmax of the row as the model gave it, before
// any processor, temperature or filter. The same for generated tokens and for those of a prompt, where row i,
// the logits after token i, is asked for token i + 1.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "request/step.h"
#include "sampling/row_math.h"

namespace sluice::sampling {

// Scores that are log-probabilities, as the scheduler passes them on.
std::vector<request::TokenLogprob> as_logprobs(std::span<const ScoredToken> tokens);

// What is needed of a row to report on whichever token is chosen later.
class RowLogprobs {
 public:
  // An error for a row with NaN or +Inf, or of -Inf alone.
  static Result<RowLogprobs> of(std::span<const float> logits, int top, std::vector<float>& scratch);

  // `logit` is the chosen token's entry in that row.
  request::Sampled report(Token token, float logit) const;

 private:
  double log_total_ = 0;
  std::vector<ScoredToken> top_;
};

// Log-probability and rank of `token`, which is inside the row, and of the `top` likeliest tokens.
Result<request::Sampled> token_logprobs(std::span<const float> logits, Token token, int top,
                                        std::vector<float>& scratch);

}  // namespace sluice::sampling
