#include "runtime/sequences/prompt_logprobs.h"

#include <algorithm>

#include "sampling/logprobs.h"

namespace sluice::runtime {

StepNeed::Range PromptLogprobs::range(const request::Request& request, const request::Work& work) {
  if (!request.sampling().prompt_logprobs) return {};
  return {work.sample_from, std::min(work.end, static_cast<int>(request.prompt.size()) - 1)};
}

Status PromptLogprobs::read(const request::Request& request, const PromptRows& rows,
                            std::vector<float>& buffer) {
  const size_t vocab = rows.logits.size() / static_cast<size_t>(rows.count);
  for (int i = 0; i < rows.count; ++i) {
    const std::span<const float> row = rows.logits.subspan(static_cast<size_t>(i) * vocab, vocab);
    const Token token = request.prompt[static_cast<size_t>(rows.begin + i + 1)];
    Result<request::Sampled> found =
        sampling::token_logprobs(row, token, *request.sampling().prompt_logprobs, buffer);
    if (!found) return found.error();
    found_.push_back(std::move(*found));
  }
  return {};
}

}  // namespace sluice::runtime
