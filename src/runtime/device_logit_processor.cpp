#include "runtime/device_logit_processor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice::runtime {

std::optional<DeviceLogitProcessor> DeviceLogitProcessor::of(const request::SamplingParams& params,
                                                             const sampling::SequenceStart& start,
                                                             std::span<const Token> end_tokens) {
  DeviceLogitProcessor edits;
  edits.repetition_ = static_cast<float>(params.repetition_penalty);
  edits.frequency_ = static_cast<float>(params.frequency_penalty);
  edits.presence_ = static_cast<float>(params.presence_penalty);
  const bool repetition = params.repetition_penalty != 1;
  edits.counts_ = repetition || params.frequency_penalty != 0 || params.presence_penalty != 0;
  edits.min_tokens_ = static_cast<size_t>(std::max(params.min_tokens, 0));
  if (repetition) {
    for (const Token token : start.prompt)
      if (token >= 0 && token < start.vocab) edits.list_.push_back({.token = token});
    std::sort(edits.list_.begin(), edits.list_.end(),
              [](const auto& a, const auto& b) { return a.token < b.token; });
    const auto same = [](const auto& a, const auto& b) { return a.token == b.token; };
    edits.list_.erase(std::unique(edits.list_.begin(), edits.list_.end(), same), edits.list_.end());
    for (kernels::LogitAdjustment& edit : edits.list_) edit.marks = kernels::LogitAdjustment::kInPrompt;
  }
  for (const request::LogitBias& entry : params.logit_bias)
    edits.edit_of(entry.token).bias += static_cast<float>(entry.bias);
  for (const std::vector<Token>& word : params.bad_words) {
    if (word.size() != 1) return std::nullopt;
    edits.edit_of(word[0]).bias = -INFINITY;
  }
  if (edits.min_tokens_ > 0)
    for (const Token token : end_tokens) edits.edit_of(token).marks |= kernels::LogitAdjustment::kEnds;
  return edits;
}

kernels::LogitAdjustment& DeviceLogitProcessor::edit_of(Token token) {
  const auto at = std::lower_bound(list_.begin(), list_.end(), token,
                                   [](const auto& edit, Token wanted) { return edit.token < wanted; });
  if (at != list_.end() && at->token == token) return *at;
  return *list_.insert(at, {.token = token});
}

void DeviceLogitProcessor::accept(Token token) {
  if (counts_) ++edit_of(token).output;
}

void DeviceLogitProcessor::fill(kernels::SampleArgs& row, size_t output, int ahead) const {
  SLUICE_CHECK(!counts_ || ahead <= 1);
  row.follows = counts_ ? ahead : 0;
  row.masks_ends = output + static_cast<size_t>(ahead) < min_tokens_ ? 1 : 0;
  row.repetition = repetition_;
  row.frequency = frequency_;
  row.presence = presence_;
}

}  // namespace sluice::runtime
