#include "runtime/step_runner.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::runtime {

namespace {

constexpr int64_t kPaddingTokens = 512;  // of one forward pass; more padding takes further passes

}  // namespace

StepRunner::StepRunner(std::unique_ptr<ModelRunner> runner, std::span<const int> blocks)
    : runner_(std::move(runner)), batch_(static_cast<int>(blocks.size()), runner_->memory().state_group()) {
  for (const int count : blocks) spare_.push_back(BlockId{count});
}

Result<std::unique_ptr<StepRunner>> StepRunner::make(const models::Model& model, KvMemoryOptions memory,
                                                     const TierOptions& tiers, bool spare) {
  const std::vector<int> blocks = memory.blocks;
  const auto padding = static_cast<int>((kPaddingTokens + memory.block_size - 1) / memory.block_size);
  for (int& count : memory.blocks) count += spare ? padding : 0;
  Result<std::unique_ptr<ModelRunner>> runner = ModelRunner::make(model, memory, tiers);
  if (!runner) return runner.error();
  return std::unique_ptr<StepRunner>(new StepRunner(std::move(*runner), blocks));
}

bool StepRunner::reads_lost_block(const request::Step& step, size_t index) {
  BlockMover& mover = runner_->mover();
  if (!mover.any_lost()) return false;
  bool lost = false;
  const int block_size = runner_->memory().block_size();
  for (int group = 0; group < step.tables.groups; ++group) {
    const std::span<const BlockId> table = step.tables.of(index, group);
    if (runner_->memory().is_state(group)) {
      lost |= starts_from_lost_state(step, index, group);
      continue;
    }
    for (size_t i = 0; i < table.size(); ++i) {
      // A block that this work fills from its start gets new content.
      if (static_cast<int>(i) * block_size >= step.work[index].begin) mover.clear_lost(group, table[i]);
      lost = lost || mover.is_lost(group, table[i]);
    }
  }
  return lost;
}

// The state that the work leaves replaces what its slots held, unless it starts from a lost one.
bool StepRunner::starts_from_lost_state(const request::Step& step, size_t index, int group) {
  BlockMover& mover = runner_->mover();
  const request::Work& work = step.work[index];
  const auto slots =
      request::StateSlots::of(step.tables.of(index, group), work.begin, work.end,
                              runner_->memory().block_size(), static_cast<int>(work.drafts.size()));
  if (slots.from != request::kNoBlock && mover.is_lost(group, slots.from)) return true;
  for (const request::StateSlots::Save& save : slots.saves) mover.clear_lost(group, save.slot);
  return false;
}

int StepRunner::add(const request::Step& step, size_t index, const request::Work& work,
                    std::span<const Token> tokens, int slot) {
  const auto begin = static_cast<size_t>(work.begin), end = static_cast<size_t>(work.known_end());
  tables_.clear();
  for (int group = 0; group < step.tables.groups; ++group) tables_.push_back(step.tables.of(index, group));
  const int row = batch_.rows();
  if (end <= tokens.size()) {
    std::span<const Token> run = tokens.subspan(begin, end - begin);
    const auto drafts = static_cast<int>(work.drafts.size());
    if (drafts > 0) {
      run_.assign(run.begin(), run.end());
      run_.insert(run_.end(), work.drafts.begin(), work.drafts.end());
      run = run_;
    }
    batch_.add(run, work.begin, tables_, work.rope_length, drafts);
    return row;
  }
  SLUICE_CHECK(work.drafts.empty());
  SLUICE_CHECK_EQ(end, std::max(begin, tokens.size()) + 1);
  SLUICE_CHECK(slot > 0);
  const std::span<const Token> known = tokens.subspan(std::min(begin, tokens.size()));
  run_.assign(known.begin(), known.end());
  run_.push_back(~slot);
  batch_.add(run_, work.begin, tables_, work.rope_length);
  return row;
}

void StepRunner::add_idle_row() {
  tables_.clear();
  for (const BlockId& block : spare_) tables_.emplace_back(&block, 1);
  const Token token = 0;
  batch_.add({&token, 1}, 0, tables_);
}

void StepRunner::fill_up(int sequences, int rows) {
  while (batch_.sequences() + 1 < sequences) add_idle_row();
  const int left = rows - batch_.rows(), size = runner_->memory().block_size();
  SLUICE_CHECK(left > 0 && left <= kPaddingTokens);
  std::vector<std::vector<BlockId>> blocks(spare_.size());
  for (size_t group = 0; group < spare_.size(); ++group)
    for (int i = 0; i * size < left; ++i) blocks[group].push_back(BlockId{spare_[group].value + i});
  tables_.assign(blocks.begin(), blocks.end());
  run_.assign(static_cast<size_t>(left), 0);
  batch_.add(run_, 0, tables_);
}

void StepRunner::add_padding(Batch& batch, int64_t tokens) const {
  const int size = runner_->memory().block_size();
  const std::vector<Token> zeros(static_cast<size_t>(size), 0);
  for (int block = 0; tokens > 0; ++block) {
    std::vector<BlockId> ids;
    for (const BlockId& first : spare_) ids.push_back(BlockId{first.value + block});
    std::vector<std::span<const BlockId>> tables;
    for (const BlockId& id : ids) tables.emplace_back(&id, 1);
    const auto count = static_cast<size_t>(std::min<int64_t>(tokens, size));
    batch.add(std::span(zeros).first(count), 0, tables);
    tokens -= static_cast<int64_t>(count);
  }
}

void StepRunner::pad(int64_t tokens) {
  for (int64_t beyond = tokens - kPaddingTokens; beyond > 0; beyond -= kPaddingTokens) {
    Batch batch(static_cast<int>(spare_.size()), runner_->memory().state_group());
    add_padding(batch, std::min(beyond, kPaddingTokens));
    runner_->forward(batch);
  }
  add_padding(batch_, std::min(tokens, kPaddingTokens));
}

}  // namespace sluice::runtime
