// Steps of a model that several ranks compute. Where they are stages, the first one runs a step while the later ones run those
// before it.
#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/step_pipeline.h"

namespace sluice::runtime {

bool RowDelivery::can_ask(std::span<const PlannedWork> plan) const {
  const auto vocab = static_cast<size_t>(target_.spec().vocab), dim = static_cast<size_t>(target_.spec().dim);
  size_t floats = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    const StepNeed& need = plan[i].need;
    if (need.logits.size() > 0 || need.attention || need.contrast) return false;
    // An owner's prompt is one range.
    if (i > 0 && need.hidden.size() > 0 && plan[i - 1].of.owner == plan[i].of.owner) return false;
    floats += static_cast<size_t>(plan[i].host_rows()) * (vocab + dim) +
              static_cast<size_t>(need.hidden.size()) * dim;
  }
  return floats <= kMostSent;
}

void RowDelivery::ask(std::span<const PlannedWork> plan, AwaitedRows& awaited) {
  awaited.asked = true;
  awaited.of_last = {.logits = true};
  rows_.clear();
  for (const PlannedWork& item : plan) {
    if (!item.need.reads_host()) continue;
    if (awaited.items.empty() || awaited.items.back().owner != item.of.owner)
      awaited.items.push_back({.owner = item.of.owner, .first_row = rows_.size()});
    AwaitedRows::Item& owed = awaited.items.back();
    if (item.need.hidden.size() > 0)
      owed.prompt = {.begin = item.need.hidden.begin, .count = item.need.hidden.size()};
    for (int i = item.host_rows(); i > 0; --i) rows_.push_back(item.last_row() + 1 - i);
    owed.rows += static_cast<size_t>(item.host_rows());
    awaited.of_last.hidden |= item.host_rows() > 0 && item.need.last_hidden;
  }
  awaited.last.resize(rows_.size());
  if (!rows_.empty()) target_.runner().ask(rows_, awaited.of_last);
  for (const PlannedWork& item : plan) {
    if (item.need.hidden.size() == 0) continue;
    rows_.resize(static_cast<size_t>(item.need.hidden.size()));
    std::iota(rows_.begin(), rows_.end(), item.row(item.need.hidden.begin));
    target_.runner().ask(rows_, {.hidden = true});
  }
}

void RowDelivery::take(AwaitedRows& awaited) {
  const auto vocab = static_cast<size_t>(target_.spec().vocab), dim = static_cast<size_t>(target_.spec().dim);
  if (!awaited.last.empty()) target_.runner().take(last_rows_);
  for (size_t i = 0; i < awaited.last.size(); ++i) {
    awaited.last[i].logits = std::span(last_rows_.logits).subspan(i * vocab, vocab);
    if (awaited.of_last.hidden) awaited.last[i].hidden = std::span(last_rows_.hidden).subspan(i * dim, dim);
  }
  prompts_.clear();
  prompts_.reserve(awaited.items.size());
  for (AwaitedRows::Item& item : awaited.items) {
    if (item.prompt.count == 0) continue;
    target_.runner().take(prompts_.emplace_back());
    item.prompt.hidden = prompts_.back().hidden;
  }
}

// Ranks on devices record steps of one token of each sequence: their rows are filled up to a number that comes back.
bool StepPipeline::pad_decode() {
  const models::Model& model = target_->runner().model();
  Batch& batch = target_->batch();
  if (!model.group || model.backend->async_device() == nullptr) return false;
  if (!model.group->placement().stage.whole() || batch.sequences() != batch.rows()) return false;
  const int wanted = padded_rows(batch.rows());
  while (batch.rows() < wanted) target_->add_idle_row();
  return true;
}

void StepPipeline::run_in_stages(SubmittedStep& submitted, const std::function<void()>& settle) {
  if (!delivery_.can_ask(plan_)) {
    settle();
    return run_on_host(submitted);
  }
  target_->runner().forward(target_->batch(), wanted_rows());
  delivery_.ask(plan_, submitted.awaited);
}

void StepPipeline::take_from_last_stage(SubmittedStep& submitted) {
  if (!std::exchange(submitted.awaited.asked, false)) return;
  delivery_.take(submitted.awaited);
  const double seconds = seconds_of(submitted);
  delivery_.deliver(submitted.awaited, {}, sequences_, submitted.outcomes);
  note_cost(submitted, seconds - submitted.draft_seconds);
}

}  // namespace sluice::runtime
