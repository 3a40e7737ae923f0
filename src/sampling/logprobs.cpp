#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice::sampling {

std::vector<request::TokenLogprob> as_logprobs(std::span<const ScoredToken> tokens) {
  std::vector<request::TokenLogprob> logprobs;
  logprobs.reserve(tokens.size());
  for (const ScoredToken& entry : tokens) logprobs.push_back({entry.token, entry.score});
  return logprobs;
}

Result<RowLogprobs> RowLogprobs::of(std::span<const float> logits, int top, std::vector<float>& scratch) {
  const Result<float> maximum = row_maximum(logits);
  if (!maximum.ok()) return maximum.error();
  if (std::isinf(*maximum)) return Error{ErrorCode::Numerical, "the logits of all tokens are -inf"};
  RowLogprobs row;
  row.log_total_ = log_sum_exp(logits, *maximum);
  row.top_ = top_tokens(logits, static_cast<size_t>(top), scratch);
  for (ScoredToken& entry : row.top_) entry.score = static_cast<float>(entry.score - row.log_total_);
  return row;
}

request::Sampled RowLogprobs::report(Token token, float logit) const {
  return {.token = token, .logprob = static_cast<float>(logit - log_total_), .top = as_logprobs(top_)};
}

Result<request::Sampled> token_logprobs(std::span<const float> logits, Token token, int top,
                                        std::vector<float>& scratch) {
  SLUICE_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  const Result<RowLogprobs> row = RowLogprobs::of(logits, top, scratch);
  if (!row.ok()) return row.error();
  request::Sampled out = row->report(token, logits[token]);
  const auto ahead =
      std::count_if(logits.begin(), logits.end(), [&](float other) { return other >= logits[token]; });
  out.rank = static_cast<int>(ahead);
  return out;
}

}  // namespace sluice::sampling
