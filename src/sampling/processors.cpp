#include "sampling/processors.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sampling/row_math.h"

namespace sluice::sampling {
Processors::Processors(std::shared_ptr<const request::SamplingParams> params, std::vector<Token> end_tokens)
    : params_(std::move(params)), end_tokens_(std::move(end_tokens)) {
  active_ = params_->allowed_tokens || !params_->bad_words.empty() || !params_->logit_bias.empty() ||
            params_->min_tokens > 0 || params_->repetition_penalty != 1 || penalizes_output();
}

bool Processors::penalizes_output() const {
  return params_->presence_penalty != 0 || params_->frequency_penalty != 0;
}

TokenHistory::Needs Processors::needs() const {
  const bool repetition = params_->repetition_penalty != 1;
  size_t tail = 0;
  for (const std::vector<Token>& word : params_->bad_words) tail = std::max(tail, word.size() - 1);
  return {.prompt_counts = repetition, .output_counts = repetition || penalizes_output(), .tail = tail};
}

void Processors::apply(std::span<float> logits, const TokenHistory& history,
                       std::vector<float>& scratch) const {
  if (params_->allowed_tokens) mask_to_allowed(logits, scratch);
  mask_bad_words(logits, history);
  if (history.output().size() < static_cast<size_t>(params_->min_tokens)) {
    for (Token token : end_tokens_) logits[token] = kMasked;
  }
  for (const request::LogitBias& entry : params_->logit_bias)
    logits[entry.token] += static_cast<float>(entry.bias);
  penalize(logits, history);
}

void Processors::mask_to_allowed(std::span<float> logits, std::vector<float>& scratch) const {
  const std::vector<Token>& allowed = *params_->allowed_tokens;
  scratch.clear();
  for (Token token : allowed) scratch.push_back(logits[token]);
  std::fill(logits.begin(), logits.end(), kMasked);
  for (size_t i = 0; i < allowed.size(); ++i) logits[allowed[i]] = scratch[i];
}

void Processors::mask_bad_words(std::span<float> logits, const TokenHistory& history) const {
  for (const std::vector<Token>& word : params_->bad_words) {
    if (history.ends_with(std::span(word).first(word.size() - 1))) logits[word.back()] = kMasked;
  }
}

void Processors::penalize(std::span<float> logits, const TokenHistory& history) const {
  const float repetition = static_cast<float>(params_->repetition_penalty);
  const float frequency = static_cast<float>(params_->frequency_penalty);
  const float presence = static_cast<float>(params_->presence_penalty);
  for (const TokenCount& entry : history.counts()) {
    if (static_cast<size_t>(entry.token) >= logits.size()) continue;  // a prompt may hold ids without a logit
    if (!entry.in_prompt && entry.output == 0) continue;
    float& logit = logits[entry.token];
    logit = logit < 0 ? logit * repetition : logit / repetition;
    if (entry.output == 0) continue;
    logit -= frequency * static_cast<float>(entry.output);
    logit -= presence;
  }
}

}  // namespace sluice::sampling
