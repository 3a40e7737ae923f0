#include "runtime/speculation/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace sluice::runtime {

namespace {

// Tokens that it may be behind the target where nobody asks for guesses: fewer than any window.
constexpr int kMostBehind = 4;

}  // namespace

Status DraftModel::check(const models::ModelSpec& draft, const models::ModelSpec& target) {
  if (rope_sets(draft) != rope_sets(target))
    return Error{ErrorCode::Unsupported, "the draft model's rope changes at other lengths than the model's",
                 "speculate"};
  if (kv_groups(draft).states || kv_groups(target).states)
    return Error{ErrorCode::Unsupported,
                 "models with layers that keep a state neither guess nor are guessed for", "speculate"};
  if (kv_groups(draft).windows != kv_groups(target).windows)
    return Error{ErrorCode::Unsupported, "the draft model's attention windows differ from the model's",
                 "speculate"};
  return {};
}

void DraftModel::apply(const request::Step& step) {
  for (const SeqId seq : step.retire) computed_.erase(seq);
  for (const request::Fork& fork : step.forks) {
    const auto parent = computed_.find(fork.parent);
    if (parent != computed_.end()) computed_[fork.child] = parent->second;
  }
  runner_->runner().move(step.moves);
}

void DraftModel::clear() {
  computed_.clear();
  runner_->runner().mover().clear();
}

// The first position whose whole window lies behind the blocks that were given back.
int DraftModel::first_with_blocks(const request::Step& step, size_t index) const {
  int first = 0;
  for (int group = 0; group < step.tables.groups; ++group) {
    const std::span<const BlockId> table = step.tables.of(index, group);
    const auto gone =
        static_cast<int>(table.rend() - std::find(table.rbegin(), table.rend(), request::kNoBlock));
    const int window = windows_[static_cast<size_t>(group)];
    if (gone > 0) first = std::max(first, gone * runner_->runner().memory().block_size() + window - 1);
  }
  return first;
}

void DraftModel::add_tokens(const request::Step& step, size_t index, int begin,
                            std::span<const Token> tokens) {
  tables_.clear();
  for (int group = 0; group < step.tables.groups; ++group) tables_.push_back(step.tables.of(index, group));
  runner_->batch().add(tokens, begin, tables_, step.work[index].rope_length);
}

// The tokens of the work, and those before it that it has not seen. False where it stays out of the pass.
bool DraftModel::add(const request::Step& step, const Item& item) {
  const request::Work& work = step.work[item.index];
  int& computed = computed_.try_emplace(work.seq, work.begin).first->second;
  computed = std::min(computed, work.begin);
  const std::span<const Token> tokens = item.sequence->tokens(item.lane);
  const int end = work.known_end();
  const bool is_single = work.end - work.begin == 1;
  const bool waits = item.work == nullptr && is_single && end - computed < kMostBehind;
  if (waits || end > static_cast<int>(tokens.size()) || work.end > runner_->spec().context) return false;
  computed = std::max(computed, first_with_blocks(step, item.index));
  if (computed >= end) return false;
  add_tokens(step, item.index, computed,
             tokens.subspan(static_cast<size_t>(computed), static_cast<size_t>(end - computed)));
  computed = end;
  return true;
}

// As wide as the target's rows: tokens that the draft model does not have are never guessed.
std::span<float> DraftModel::row(size_t index) {
  const auto width = static_cast<size_t>(runner_->spec().vocab);
  const std::span<float> logits = std::span(rows_.logits).subspan(index * width, width);
  if (width >= static_cast<size_t>(vocab_)) return logits.first(static_cast<size_t>(vocab_));
  row_.assign(static_cast<size_t>(vocab_), -std::numeric_limits<float>::infinity());
  std::copy(logits.begin(), logits.end(), row_.begin());
  return row_;
}

// A guess for each; those that need or can have no more are done.
void DraftModel::take_guesses(std::vector<Live>& live) {
  wanted_.clear();
  for (const Live& one : live) wanted_.push_back(one.row);
  runner_->runner().forward(runner_->batch(), wanted_);
  if (live.empty()) return;
  runner_->runner().read(wanted_, {.logits = true}, rows_);
  size_t kept = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const Live& one = live[i];
    const std::optional<Token> guess = one.item->sequence->guess(row(i), workspace_);
    if (!guess) continue;
    one.item->work->drafts.push_back(*guess);
    if (one.item->work->drafts.size() < one.wanted) live[kept++] = one;
  }
  live.resize(kept);
}

DraftModel::Cost DraftModel::run(const request::Step& step, std::span<const Item> items) {
  const TimePoint start = Clock::now();
  runner_->start();
  std::vector<Live> live;
  bool prompts = false;
  for (const Item& item : items) {
    const size_t wanted = item.work == nullptr ? 0 : item.work->drafts.size();
    if (item.work != nullptr) item.work->drafts.clear();
    if (!add(step, item)) continue;
    if (wanted > 0) live.push_back({&item, wanted, runner_->batch().rows() - 1});
    prompts |= wanted == 0;
  }
  Cost cost;
  if (runner_->batch().rows() > 0) take_guesses(live);
  for (cost.passes = 1; !live.empty(); ++cost.passes) {
    runner_->start();
    for (Live& one : live) {
      request::Work& work = *one.item->work;
      const int position = step.work[one.item->index].known_end() + static_cast<int>(work.drafts.size()) - 1;
      one.row = runner_->batch().rows();
      add_tokens(step, one.item->index, position, {&work.drafts.back(), 1});
      computed_[work.seq] = position + 1;
    }
    take_guesses(live);
  }
  for (const Item& item : items) {
    if (item.work == nullptr) continue;
    item.sequence->forget_guesses();
    item.work->end = step.work[item.index].known_end() + static_cast<int>(item.work->drafts.size());
  }
  if (prompts || runner_->batch().rows() == 0) return {};
  cost.seconds = seconds_since(start);
  return cost;
}

}  // namespace sluice::runtime
