#include "runtime/speculation/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/clock.h"

namespace sluice::runtime {

namespace {

// Tokens that it may be behind the target where nobody asks for guesses: fewer than any window.
constexpr int kMostBehind = 4;

}  // namespace

DraftModel::DraftModel(std::unique_ptr<StepRunner> runner, int vocab, const models::Head* head)
    : runner_(std::move(runner)), windows_(kv_groups(runner_->spec()).windows), vocab_(vocab) {
  if (head != nullptr) inputs_.emplace(*head);
}

Speculation DraftModel::kind() const {
  if (!is_head()) return Speculation::Draft;
  return inputs_->head().kind == models::Head::Kind::Mtp ? Speculation::Mtp : Speculation::Eagle3;
}

Status DraftModel::check(const models::ModelSpec& draft, const models::ModelSpec& target) {
  if (rope_sets(draft) != rope_sets(target))
    return Error{ErrorCode::Unsupported, "the drafts' rope changes at other lengths than the model's",
                 "speculate"};
  if (kv_groups(draft).states || kv_groups(target).states)
    return Error{ErrorCode::Unsupported,
                 "models with layers that keep a state neither guess nor are guessed for", "speculate"};
  if (kv_groups(draft).windows != kv_groups(target).windows)
    return Error{ErrorCode::Unsupported, "the drafts' attention windows differ from the model's",
                 "speculate"};
  return {};
}

void DraftModel::apply(const request::Step& step) {
  for (const SeqId seq : step.retire) {
    computed_.erase(seq);
    kept_.erase(seq);
  }
  for (const request::Fork& fork : step.forks) {
    const auto parent = computed_.find(fork.parent);
    if (parent != computed_.end()) computed_[fork.child] = parent->second;
    const auto kept = kept_.find(fork.parent);
    if (kept != kept_.end()) kept_[fork.child] = Kept(kept->second);
  }
  runner_->runner().move(step.moves);
}

void DraftModel::clear() {
  computed_.clear();
  kept_.clear();
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

// Drafts of an earlier step may have hidden states among those that are kept: only those before the work's first token count.
void DraftModel::keep(const request::Work& work, int first_row, ModelRunner& target) {
  const auto dim = static_cast<size_t>(runner_->spec().dim);
  Kept& kept = kept_[work.seq];
  const int end = kept.begin + static_cast<int>(kept.rows.size() / dim);
  if (work.begin < kept.begin || work.begin > end) kept = {work.begin, {}};
  kept.rows.resize(static_cast<size_t>(work.begin - kept.begin) * dim);
  wanted_.resize(static_cast<size_t>(work.end - work.begin));
  std::iota(wanted_.begin(), wanted_.end(), first_row);
  if (reads_hidden()) {
    target.read(wanted_, {.hidden = true}, rows_);
    kept.rows.insert(kept.rows.end(), rows_.hidden.begin(), rows_.hidden.end());
    return;
  }
  target.read(wanted_, {.tapped = true}, rows_);
  const auto count = static_cast<int64_t>(wanted_.size());
  const TensorView tapped = TensorView::contiguous(
      rows_.tapped.data(), DType::F32, {count, static_cast<int64_t>(rows_.tapped.size()) / count});
  const float* fused = inputs_->fuse(tapped).at<float>();
  kept.rows.insert(kept.rows.end(), fused, fused + wanted_.size() * dim);
}

// The positions before the work whose hidden states are there and that the head has not run.
bool DraftModel::add_kept(const request::Step& step, const Item& item, int& computed) {
  const request::Work& work = step.work[item.index];
  const auto dim = static_cast<size_t>(runner_->spec().dim);
  const auto found = kept_.find(work.seq);
  if (found == kept_.end()) return false;
  Kept& kept = found->second;
  const int end = work.begin;
  if (kept.begin + static_cast<int>(kept.rows.size() / dim) < end) return false;
  computed = std::max(computed, kept.begin);
  const bool is_single = work.end - work.begin == 1;
  const bool waits = item.work == nullptr && is_single && end - computed < kMostBehind;
  const std::span<const Token> tokens = item.sequence->tokens(item.lane);
  if (waits || end >= static_cast<int>(tokens.size()) || work.end > runner_->spec().context) return false;
  computed = std::max(computed, first_with_blocks(step, item.index));
  if (computed >= end) return false;
  const auto first = static_cast<size_t>(computed), count = static_cast<size_t>(end - computed);
  add_tokens(step, item.index, computed, tokens.subspan(first + 1, count));
  const auto from = kept.rows.begin() + static_cast<long>((first - static_cast<size_t>(kept.begin)) * dim);
  hidden_.insert(hidden_.end(), from, from + static_cast<long>(count * dim));
  kept = {end, {}};
  computed = end;
  return true;
}

// The tokens of the work, and those before it that it has not seen. False where it stays out of the pass.
bool DraftModel::add(const request::Step& step, const Item& item) {
  const request::Work& work = step.work[item.index];
  int& computed = computed_.try_emplace(work.seq, work.begin).first->second;
  computed = std::min(computed, work.begin);
  if (is_head()) return add_kept(step, item, computed);
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
  if (is_head() && !inputs_->head().tokens.empty()) {
    row_.assign(static_cast<size_t>(vocab_), -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < width; ++i) row_[static_cast<size_t>(inputs_->head().tokens[i])] = logits[i];
    return row_;
  }
  if (width >= static_cast<size_t>(vocab_)) return logits.first(static_cast<size_t>(vocab_));
  row_.assign(static_cast<size_t>(vocab_), -std::numeric_limits<float>::infinity());
  std::copy(logits.begin(), logits.end(), row_.begin());
  return row_;
}

// What stands for the target's in the next pass; empty where it is no head.
std::span<const float> DraftModel::last_hidden(size_t index) const {
  if (!is_head()) return {};
  const auto dim = static_cast<size_t>(inputs_->head().model->spec().dim);
  return std::span(reads_hidden() ? rows_.hidden : rows_.stream).subspan(index * dim, dim);
}

void DraftModel::embed_fused() {
  const int64_t rows = runner_->batch().rows(), dim = runner_->spec().dim;
  const TensorView hidden = TensorView::contiguous(hidden_.data(), DType::F32, {rows, dim});
  runner_->batch().embed(0, inputs_->make(runner_->batch().tokens(), hidden), nullptr);
  hidden_.clear();
}

// A guess for each; those that need or can have no more are done.
void DraftModel::take_guesses(std::vector<Live>& live) {
  wanted_.clear();
  for (const Live& one : live) wanted_.push_back(one.row);
  if (is_head()) embed_fused();
  runner_->runner().forward(runner_->batch(), wanted_);
  if (live.empty()) return;
  const Speculation by = kind();
  runner_->runner().read(
      wanted_, {.logits = true, .hidden = by == Speculation::Mtp, .stream = by == Speculation::Eagle3},
      rows_);
  size_t kept = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    Live& one = live[i];
    const std::optional<Token> guess = one.item->sequence->guess(row(i), workspace_);
    if (!guess) continue;
    one.item->work->drafts.push_back(*guess);
    if (one.item->work->drafts.size() >= one.wanted) continue;
    const std::span<const float> hidden = last_hidden(i);
    one.hidden.assign(hidden.begin(), hidden.end());
    live[kept++] = std::move(one);
  }
  live.resize(kept);
}

// Behind the last guess of each. What a head runs with its own hidden states, it runs again with the target's.
void DraftModel::run_on(const request::Step& step, std::vector<Live>& live) {
  runner_->start();
  for (Live& one : live) {
    request::Work& work = *one.item->work;
    const int end = step.work[one.item->index].known_end() + static_cast<int>(work.drafts.size());
    const int position = end - (is_head() ? 2 : 1);
    one.row = runner_->batch().rows();
    add_tokens(step, one.item->index, position, {&work.drafts.back(), 1});
    if (!is_head()) computed_[work.seq] = position + 1;
    hidden_.insert(hidden_.end(), one.hidden.begin(), one.hidden.end());
  }
  take_guesses(live);
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
    // A head guesses behind the position before the work alone, where that is the last but one of the known ones.
    const request::Work& work = step.work[item.index];
    const bool guesses = wanted > 0 && (!is_head() || work.begin + 1 == work.known_end());
    if (guesses) live.push_back({&item, wanted, runner_->batch().rows() - 1});
    prompts |= !guesses;
  }
  Cost cost;
  if (runner_->batch().rows() > 0) take_guesses(live);
  for (cost.passes = 1; !live.empty(); ++cost.passes) run_on(step, live);
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
