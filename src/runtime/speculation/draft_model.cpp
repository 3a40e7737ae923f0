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
// Rows of a pass that comes back often enough to be recorded, and tokens of a sequence that are more than what the last
// step left over.
constexpr int kMostPassRows = 512, kCatchesUp = 3;

// How the rows of a pass are sampled, each behind the other.
class RowsOfPass final : public RowSampling {
 public:
  explicit RowsOfPass(OverlappedStepRunner::SampleBatch& batch) : batch_(batch) {}
  int row = 0;  // of the batch, for the next one
  void add(const kernels::SampleArgs& how, std::span<const kernels::LogitAdjustment> edits) override {
    batch_.add(row, how, edits);
  }
  std::span<uint32_t> add_mask() override { return {}; }

 private:
  OverlappedStepRunner::SampleBatch& batch_;
};

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
  if (kv_groups(draft).states)
    return Error{ErrorCode::Unsupported,
                 fmt::format("the draft model of the family '{}' has layers that keep a state, which are not "
                             "taken back behind its guesses",
                             draft.family),
                 "speculate"};
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
  moves_.clear();
  for (const request::BlockMove& move : step.moves)
    if (has_group(move.group)) moves_.push_back(move);
  runner_->runner().move(moves_);
}

void DraftModel::clear() {
  computed_.clear();
  kept_.clear();
  runner_->runner().mover().clear();
}

// The first position whose whole window lies behind the blocks that were given back.
int DraftModel::first_with_blocks(const request::Step& step, size_t index) const {
  int first = 0;
  for (int group = 0; has_group(group); ++group) {
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
  const size_t before = kept.rows.size();
  kept.rows.resize(before + wanted_.size() * dim);
  const TensorView fused =
      TensorView::contiguous(kept.rows.data() + before, DType::F32, {count, static_cast<int64_t>(dim)});
  model().backend->download(fused, inputs_->fuse(tapped));
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
  if (prompts || runner_->batch().rows() == 0) cost.passes = 0;
  cost.seconds = seconds_since(start);
  return cost;
}

// -- on an asynchronous device

int DraftModel::draft_slot(size_t index, OverlappedStepRunner& ahead) {
  while (slots_.size() <= index) slots_.push_back(ahead.slots().take());
  return slots_[index].number();
}

void DraftModel::take_sent(size_t left, OverlappedStepRunner& ahead) {
  for (; sent_.size() > left; sent_.pop_front()) {
    const Sent& pass = sent_.front();
    const std::span<const kernels::SampledToken> sampled = ahead.wait(pass.ticket);
    for (size_t i = 0; i < pass.works.size(); ++i) pass.works[i]->drafts[pass.draft] = sampled[i].token;
  }
}

// To a shape that comes back, with so many of its rows sampled from: idle ones fill those up too.
void DraftModel::pad_pass(size_t sampled) {
  Batch& batch = runner_->batch();
  const int rows = batch.rows(), wanted = padded_rows(static_cast<int>(sampled));
  const bool single = rows == static_cast<int>(sampled);
  if (single) {
    while (batch.rows() < wanted) runner_->add_idle_row();
  } else {
    const PaddedShape shape = padded_shape(batch.sequences(), rows);
    runner_->fill_up(shape.sequences, shape.rows);
  }
  for (int i = 0; i < wanted - static_cast<int>(sampled); ++i) to_sample_.add(rows + (single ? i : 0), {});
}

// Samples draft number `draft` of each behind its row. Passes of the same shape are recorded; the device is never more than
// a few of them behind.
void DraftModel::send_pass(const std::vector<Live>& live, size_t draft, OverlappedStepRunner& ahead) {
  take_sent(kernels::AsyncDevice::kTickets - 1, ahead);
  Batch& batch = runner_->batch();
  to_sample_.clear();
  RowsOfPass rows(to_sample_);
  Sent& sent = sent_.emplace_back();
  sent.draft = draft;
  for (const Live& one : live) {
    rows.row = one.row;
    one.item->sequence->guess_on_device(static_cast<int>(draft), ~one.item->work->drafts[draft], rows);
    sent.works.push_back(one.item->work);
  }
  const bool repeats = passes_ > 0 && batch.rows() <= kMostPassRows;
  if (repeats) pad_pass(live.size());
  to_sample_.vocab = vocab_;
  if (repeats) {
    ahead.replay(runner_->runner(), batch, to_sample_);
  } else {
    ahead.run(runner_->runner(), batch, to_sample_, to_sample_.rows);
  }
  sent.ticket = ahead.send(to_sample_);
}

void DraftModel::submit(const request::Step& step, std::span<const Item> items, OverlappedStepRunner& ahead) {
  submitted_ = Clock::now();
  passes_ = 1;
  sent_.clear();
  runner_->start();
  std::vector<Live> live;
  size_t slots = 0;
  for (const Item& item : items) {
    const int before = runner_->batch().rows();
    const bool runs = add(step, item);
    const int added = runner_->batch().rows() - before;
    if (runs && (item.work == nullptr || added > kCatchesUp)) passes_ = 0;
    if (item.work == nullptr) continue;
    std::vector<Token>& drafts = item.work->drafts;
    for (size_t i = 0; i < drafts.size(); ++i) {
      const int slot = runs ? draft_slot(slots, ahead) : 0;
      if (slot == 0) drafts.resize(i);
      if (slot != 0) drafts[i] = ~static_cast<Token>(slots_[slots++].number());
    }
    item.work->end = step.work[item.index].known_end() + static_cast<int>(drafts.size());
    if (!drafts.empty()) live.push_back({&item, drafts.size(), runner_->batch().rows() - 1});
  }
  if (live.empty()) {
    passes_ = 0;
    if (runner_->batch().rows() == 0) return;
    ahead.note_begun();
    return runner_->runner().forward(runner_->batch(), std::span<const int32_t>());
  }
  const bool steady = passes_ > 0 && recorded_.runs_fast(padded_shape(static_cast<int>(live.size()),
                                                                      runner_->batch().rows()));
  send_pass(live, 0, ahead);
  for (size_t draft = 1;; ++draft) {
    std::erase_if(live, [&](const Live& one) { return one.wanted <= draft; });
    if (live.empty()) break;
    runner_->start();
    for (Live& one : live) {
      const int position = step.work[one.item->index].known_end() + static_cast<int>(draft) - 1;
      one.row = runner_->batch().rows();
      add_tokens(step, one.item->index, position, {&one.item->work->drafts[draft - 1], 1});
      computed_[one.item->work->seq] = position + 1;
    }
    passes_ = static_cast<int>(draft) + 1;
    send_pass(live, draft, ahead);
  }
  if (!steady) passes_ = 0;
}

DraftModel::Cost DraftModel::take(OverlappedStepRunner& ahead) {
  take_sent(0, ahead);
  return {passes_, seconds_since(submitted_)};
}

}  // namespace sluice::runtime
