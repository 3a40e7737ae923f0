#include "lab/measure/track.h"

#include <algorithm>
#include <span>
#include <vector>

namespace sluice::lab {

Result<std::unique_ptr<Track>> Track::make(const models::Model& model, const SpeedOptions& options,
                                           int sequences, int positions) {
  const int blocks = (positions + options.block_size - 1) / options.block_size;
  auto track = std::unique_ptr<Track>(new Track(model, options, blocks));
  const runtime::KvGroups kv = runtime::kv_groups(model.spec());
  const size_t groups = kv.count();
  runtime::KvMemoryOptions memory{options.block_size, options.kv_type,
                                  std::vector<int>(groups, static_cast<int>(int64_t{blocks} * sequences))};
  if (kv.states) memory.blocks[static_cast<size_t>(*kv.states)] = sequences;
  const std::vector<int> none(groups, 0);
  Result<std::unique_ptr<runtime::ModelRunner>> runner = runtime::ModelRunner::make(
      model, memory, {.host_blocks = none, .disk_blocks = none, .disk_folder = ""});
  if (!runner) return runner.error();
  track->runner_ = std::move(*runner);
  if (kernels::AsyncDevice* device = model.backend->async_device()) track->ahead_.emplace(*device);
  track->groups_ = static_cast<int>(groups);
  track->sequences_ = sequences;
  return track;
}

void Track::spread(int depth) {
  const int used = (depth + options_.block_size - 1) / options_.block_size;
  runtime::KvMemory& memory = runner_->memory();
  for (int sequence = 1; sequence < sequences_; ++sequence)
    for (int group = 0; group < groups_; ++group)
      for (int i = 0; i < (memory.is_state(group) ? std::min(used, 1) : used); ++i)
        memory.copy_block(group, BlockId{i},
                          memory.is_state(group) ? BlockId{sequence} : BlockId{sequence * blocks_ + i});
}

void Track::fill_alike(int depth) {
  constexpr int kKnown = 128;
  const int known = std::min(depth, kKnown);
  read_prompt(0, known);
  const auto blocks_of = [&](int positions) {
    return (positions + options_.block_size - 1) / options_.block_size;
  };
  runtime::KvMemory& memory = runner_->memory();
  for (int sequence = 0; sequence < sequences_; ++sequence) {
    for (int group = 0; group < groups_; ++group) {
      if (memory.is_state(group)) {
        if (sequence > 0) memory.copy_block(group, BlockId{0}, BlockId{sequence});
        continue;
      }
      for (int i = sequence == 0 ? blocks_of(known) : 0; i < blocks_of(depth); ++i)
        memory.copy_block(group, BlockId{i % blocks_of(known)}, BlockId{sequence * blocks_ + i});
    }
  }
}

void Track::submit(runtime::Batch& batch, std::span<const int32_t> rows, bool replays) {
  if (!ahead_) {
    runner_->forward(batch);
    if (!rows.empty()) runner_->read(rows, {.logits = true}, rows_);
    return;
  }
  runtime::OverlappedStepRunner::SampleBatch to_sample;
  for (const int32_t row : rows) to_sample.add(row, {});
  if (replays) {
    ahead_->replay(*runner_, batch, to_sample);
  } else {
    ahead_->run(*runner_, batch, to_sample, rows);
  }
}

void Track::wait() {
  if (ahead_) ahead_->device().synchronize();
}

void Track::read_prompt(int begin, int tokens) {
  const int end = begin + tokens;
  for (int from = begin; from < end; from += options_.step_tokens) {
    const int count = std::min(options_.step_tokens, end - from);
    runtime::Batch batch(groups_, runner_->memory().state_group());
    add(batch, 0, from, count);
    const int32_t last = count - 1;
    submit(batch, from + count == end ? std::span(&last, 1) : std::span<const int32_t>(), false);
  }
  wait();
}

void Track::read_prompts(int sequences, int tokens, const std::function<void()>& between) {
  runtime::Batch batch(groups_, runner_->memory().state_group());
  std::vector<int32_t> ends;
  const auto run_batch = [&] {
    submit(batch, ends, false);
    batch.clear();
    ends.clear();
    if (between) between();
  };
  for (int sequence = 0; sequence < sequences; ++sequence) {
    for (int begin = 0; begin < tokens;) {
      const int count = std::min(options_.step_tokens - batch.rows(), tokens - begin);
      add(batch, sequence, begin, count);
      begin += count;
      if (begin == tokens) ends.push_back(batch.rows() - 1);
      if (batch.rows() == options_.step_tokens) run_batch();
    }
  }
  if (batch.rows() > 0) run_batch();
  wait();
}

void Track::write_token(int batch_size, int position) {
  submit_step(batch_size, 1, position, true);
  wait();
}

void Track::submit_step(int sequences, int queries, int depth, bool logits) {
  runtime::Batch batch(groups_, runner_->memory().state_group());
  std::vector<int32_t> rows;
  for (int sequence = 0; sequence < sequences; ++sequence) {
    add(batch, sequence, depth, queries);
    if (logits) rows.push_back(batch.rows() - 1);
  }
  submit(batch, rows, logits && queries == 1);
}

void Track::add(runtime::Batch& batch, int sequence, int begin, int count) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (Token& token : tokens) token = next_token();
  const int used = (begin + count + options_.block_size - 1) / options_.block_size;
  std::vector<BlockId> table;
  table.reserve(static_cast<size_t>(used));
  for (int i = 0; i < used; ++i) table.push_back(BlockId{sequence * blocks_ + i});
  std::vector<std::span<const BlockId>> tables(static_cast<size_t>(groups_), table);
  const std::vector<BlockId> one_slot(table.size(), BlockId{sequence});
  if (const auto states = runner_->memory().state_group())
    tables[static_cast<size_t>(states->group)] = one_slot;
  batch.add(tokens, begin, tables);
}

// Steele, Lea and Flood's SplitMix64.
Token Track::next_token() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<Token>((z ^ (z >> 31)) % static_cast<uint64_t>(model_.spec().vocab));
}

}  // namespace sluice::lab
