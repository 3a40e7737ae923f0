// The logit processors: what a request adds to, subtracts from or forbids in a row, before any filter.
// Applied in the order of vLLM, which for every pair that does not commute is that of transformers too:
//
//   allowed tokens > bad words > min tokens > logit bias > repetition > frequency > presence
//
// A masked token is -Inf and stays so. Repetition looks at prompt and output, as transformers and vLLM;
// presence and frequency at the output alone, as OpenAI and vLLM; bad words at prompt and output, as
// transformers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "request/sampling_params.h"
#include "sampling/token_history.h"

namespace sluice::sampling {

class Processors {
 public:
  // `end_tokens` are those that end the sequence and that min_tokens masks. The parameters must be valid.
  Processors(std::shared_ptr<const request::SamplingParams> params, std::vector<Token> end_tokens);

  std::span<const Token> end_tokens() const { return end_tokens_; }
  // Whether apply() could change a row at all.
  bool active() const { return active_; }
  // What a history must keep for these processors.
  TokenHistory::Needs needs() const;
  // `scratch` is used for the tokens that survive allowed_tokens.
  void apply(std::span<float> logits, const TokenHistory& history, std::vector<float>& scratch) const;

 private:
  bool penalizes_output() const;
  void mask_to_allowed(std::span<float> logits, std::vector<float>& scratch) const;
  void mask_bad_words(std::span<float> logits, const TokenHistory& history) const;
  void penalize(std::span<float> logits, const TokenHistory& history) const;

  std::shared_ptr<const request::SamplingParams> params_;
  std::vector<Token> end_tokens_;
  bool active_ = false;
};

}  // namespace sluice::sampling
