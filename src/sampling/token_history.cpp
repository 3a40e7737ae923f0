#include "sampling/token_history.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::sampling {

TokenHistory::TokenHistory(std::span<const Token> prompt, Needs needs)
    : tail_(std::min(needs.tail, prompt.size())), count_output_(needs.output_counts) {
  const std::span<const Token> tail = prompt.last(tail_);
  tokens_.assign(tail.begin(), tail.end());
  if (!needs.prompt_counts) return;
  for (Token token : prompt) count_of(token).in_prompt = true;
}

TokenCount& TokenHistory::count_of(Token token) {
  const auto [slot, added] = slots_.try_emplace(token, counts_.size());
  if (added) counts_.push_back({.token = token});
  return counts_[slot->second];
}

void TokenHistory::append(Token token) {
  tokens_.push_back(token);
  if (count_output_) ++count_of(token).output;
}

void TokenHistory::rollback(size_t count) {
  SLUICE_CHECK_LE(count, output().size());
  for (size_t i = 0; i < count; ++i) {
    if (count_output_) --count_of(tokens_.back()).output;
    tokens_.pop_back();
  }
}

bool TokenHistory::ends_with(std::span<const Token> suffix) const {
  return suffix.size() <= tokens_.size() &&
         std::equal(suffix.begin(), suffix.end(), tokens_.end() - suffix.size());
}

}  // namespace sluice::sampling
