#include "runtime/sequences/search_group.h"

namespace sluice::runtime {

StepNeed SearchGroup::need(size_t lane, const request::Work& work) const {
  StepNeed need;
  if (lanes() == 1) {
    if (work.sample_from < work.end) need.logits = PromptLogprobs::range(*request_, work);
    if (search_->wants_context()) need.hidden = {work.begin, work.end};
  }
  if (!is_last(lane, work)) return need;
  need.last = StepNeed::Last::Host;
  need.last_hidden = search_->wants_context();
  return need;
}

void SearchGroup::read_prompt(const PromptRows& rows, sampling::Workspace& workspace) {
  if (!rows.hidden.empty()) search_->take_context(rows.begin, rows.hidden);
  if (rows.logits.empty() || failed_) return;
  if (Status read = prompt_.read(*request_, rows, workspace.buffer); !read) failed_ = read.error();
}

std::optional<request::Outcome> SearchGroup::consume(const StepRows& rows) {
  if (failed_) return request::Outcome{{}, *failed_, {}};
  request::Outcome outcome{{}, request::Tokens{}, prompt_.take()};
  if (rows.last.size() != lanes()) {
    if (outcome.prompt_logprobs.empty()) return std::nullopt;
    return outcome;
  }
  Result<request::SearchMove> move = search_->advance(rows.last, rows.workspace);
  if (move) {
    outcome.result = std::move(*move);
  } else {
    failed_ = move.error();
    outcome.result = move.error();
  }
  return outcome;
}

}  // namespace sluice::runtime
