#include "runtime/model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <random>

#include "base/system/memory.h"

namespace sluice::runtime {

namespace {

constexpr int64_t kPaddingTokens = 512;  // of one forward pass; more padding takes further passes

int padding_blocks(int block_size) {
  return static_cast<int>((kPaddingTokens + block_size - 1) / block_size);
}

constexpr auto kFileCheckInterval = std::chrono::milliseconds(100);
// What requests are told; reset() names the file.
Error files_changed() {
  return {ErrorCode::Internal, "the step failed: the model's file changed on disk"};
}

uint64_t seed_of(const request::Request& request, uint64_t entropy) {
  const request::Sampling* sampling = request::sampling_of(request.sampling());
  if (sampling != nullptr && sampling->seed) return *sampling->seed;
  return (entropy ^ request.id.value) * 0x9E3779B97F4A7C15u;
}

}  // namespace

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::make(const models::Model& model,
                                                           const models::Model* amateur,
                                                           const ExecutorOptions& options) {
  auto executor = std::unique_ptr<ModelExecutor>(new ModelExecutor(model, options));
  executor->entropy_ = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  try {
    if (Status status = executor->set_up(amateur); !status) return status.error();
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Unavailable, fmt::format("cannot start: {}", problem.what())};
  }
  return executor;
}

Status ModelExecutor::set_up(const models::Model* amateur) {
  KvMemoryOptions memory = options_.memory;
  if (kernels::AsyncDevice* device = model_.backend->async_device()) ahead_.emplace(*device);
  for (int& blocks : memory.blocks) {
    if (options_.padding || ahead_) blocks += padding_blocks(memory.block_size);
  }
  Result<std::unique_ptr<ModelRunner>> expert = ModelRunner::make(model_, memory, options_.tiers);
  if (!expert) return expert.error();
  target_ = std::move(*expert);
  if (ahead_ && options_.warm_up.tokens > 0) {
    std::vector<BlockId> spare;
    for (const int blocks : options_.memory.blocks) spare.push_back(BlockId{blocks});
    const WarmUp warm{*ahead_, *target_, std::move(spare)};
    run_largest_step(warm, options_.warm_up);
    run_common_steps(warm, options_.warm_up);
  }
  if (amateur == nullptr) return {};

  if (amateur->spec().vocab != model_.spec().vocab)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the amateur has a vocabulary of {}, the model of {}", amateur->spec().vocab,
                             model_.spec().vocab)};
  if (rope_sets(amateur->spec()) != rope_sets(model_.spec()))
    return Error{ErrorCode::Unsupported, "the amateur's rope changes at other lengths than the model's"};
  if (kv_groups(amateur->spec()).windows != kv_groups(model_.spec()).windows)
    return Error{ErrorCode::Unsupported, "the amateur's attention windows differ from the model's"};
  Result<std::unique_ptr<ModelRunner>> second = ModelRunner::make(*amateur, memory, options_.tiers);
  if (!second) return second.error();
  contrast_ = std::move(*second);
  return {};
}

void ModelExecutor::admit(const request::Admission& admission) {
  const request::Request& request = *admission.request;
  if (const request::Pooling* pooling = request.pooling()) {
    pooled_.emplace(admission.seq,
                    PooledSequence{EmbeddingPooler(*pooling, model_.spec().dim), admission.request});
    return;
  }
  const sampling::SequenceStart start{
      .params = std::shared_ptr<const request::SamplingParams>(admission.request, &request.sampling()),
      .vocab = model_.spec().vocab,
      .prompt = request.prompt,
      .eos_tokens = options_.eos_tokens,
      .seed = seed_of(request, entropy_),
      .choice = 0};
  sampling::TokenSampler sampler(start);
  if (request::sampling_of(request.sampling()) != nullptr) {
    SampledSequence solo{request.prompt, std::move(sampler), admission.request, {}, 0, 0, {}};
    if (ahead_ && sample_args(solo.sampler, 0, 0)) {
      if (std::optional<DeviceLogitProcessor> edits =
              DeviceLogitProcessor::of(*start.params, start, solo.sampler.end_tokens())) {
        solo.edits = std::move(*edits);
        solo.slot = ahead_->take_slot().value_or(0);
      }
    }
    sampled_sequences_.emplace(admission.seq, std::move(solo));
    return;
  }
  Group group{
      make_search(request, {request.prompt, std::move(sampler)}, model_.spec().dim), admission.request, {}};
  group.lanes = {admission.seq};
  lane_of_[admission.seq] = {admission.seq, 0};
  groups_.emplace(admission.seq, std::move(group));
}

// What is kept of a sequence is as long as its prompt: where there is no memory for it, it fails alone.
void ModelExecutor::admit_or_starve(const request::Admission& admission) {
  try {
    admit(admission);
  } catch (const std::bad_alloc&) {
    lane_of_.erase(admission.seq);
    starved_.insert(admission.seq);
  }
}

void ModelExecutor::fork_or_starve(const request::Fork& entry) {
  try {
    if (!starved_.contains(entry.parent)) return fork(entry);
  } catch (const std::bad_alloc&) {
  }
  starved_.insert(entry.child);
}

void ModelExecutor::fork(const request::Fork& fork) {
  const SampledSequence& parent = sampled_sequences_.at(fork.parent);
  SampledSequence child{parent.tokens,
                        parent.sampler.fork(static_cast<uint32_t>(fork.choice)),
                        parent.request,
                        parent.edits,
                        0,
                        0,
                        {}};
  if (parent.slot > 0) child.slot = ahead_->take_slot().value_or(0);
  sampled_sequences_.emplace(fork.child, std::move(child));
}

void ModelExecutor::retire(SeqId seq) {
  starved_.erase(seq);
  if (const auto solo = sampled_sequences_.find(seq); solo != sampled_sequences_.end()) {
    if (solo->second.slot > 0) ahead_->free_slot(solo->second.slot);
    sampled_sequences_.erase(solo);
  }
  pooled_.erase(seq);
  const auto group = groups_.find(seq);
  if (group == groups_.end()) return;
  for (SeqId lane : group->second.lanes) lane_of_.erase(lane);
  groups_.erase(group);
}

void ModelExecutor::name_lanes(const request::Lanes& lanes) {
  Group& group = groups_.at(lanes.group);
  for (SeqId lane : group.lanes) lane_of_.erase(lane);
  group.lanes = lanes.lanes;
  SLUICE_CHECK_EQ(group.lanes.size(), group.search->lanes().size());
  for (size_t i = 0; i < lanes.lanes.size(); ++i) lane_of_[lanes.lanes[i]] = {lanes.group, i};
}

std::span<const Token> ModelExecutor::tokens_of(SeqId seq) const {
  if (const auto solo = sampled_sequences_.find(seq); solo != sampled_sequences_.end())
    return solo->second.tokens;
  if (const auto one = pooled_.find(seq); one != pooled_.end()) return one->second.request->prompt;
  const auto& [group, lane] = lane_of_.at(seq);
  return groups_.at(group).search->lanes()[lane].tokens;
}

bool ModelExecutor::touches_lost_block(BlockMover& mover, const request::Step& step, size_t index) const {
  if (!mover.any_lost()) return false;
  bool lost = false;
  const int block_size = options_.memory.block_size;
  for (int group = 0; group < step.tables.groups; ++group) {
    const std::span<const BlockId> table = step.tables.of(index, group);
    for (size_t i = 0; i < table.size(); ++i) {
      // A block that this work fills from its start gets new content.
      if (static_cast<int>(i) * block_size >= step.work[index].begin) mover.clear_lost(group, table[i]);
      lost = lost || mover.is_lost(group, table[i]);
    }
  }
  return lost;
}

bool ModelExecutor::add_work(Batch& batch, const request::Step& step, size_t index) {
  const request::Work& work = step.work[index];
  if (starved_.contains(work.seq)) {
    outcomes_.push_back({work.seq, out_of_memory(), {}});
    return false;
  }
  bool lost = touches_lost_block(target_->mover(), step, index);
  if (contrast_) lost |= touches_lost_block(contrast_->mover(), step, index);
  if (const auto solo = sampled_sequences_.find(work.seq); solo != sampled_sequences_.end()) {
    if (solo->second.failed) {
      outcomes_.push_back({work.seq, *solo->second.failed, {}});
      return false;
    }
    // What was planned behind lost work may count on a token that never came.
    lost |= solo->second.lost && work.end > solo->second.length();
    solo->second.lost = lost;
  }
  if (lost) {
    const auto lane = lane_of_.find(work.seq);
    outcomes_.push_back({lane == lane_of_.end() ? work.seq : lane->second.first, request::KvLost{}, {}});
    return false;
  }
  std::vector<std::span<const BlockId>> tables;
  tables.reserve(static_cast<size_t>(step.tables.groups));
  for (int group = 0; group < step.tables.groups; ++group) tables.push_back(step.tables.of(index, group));
  const std::span<const Token> tokens = tokens_of(work.seq);
  const auto known = std::min(static_cast<size_t>(work.end), tokens.size());
  std::vector<Token> run(tokens.begin() + std::min<long>(work.begin, static_cast<long>(known)),
                         tokens.begin() + static_cast<long>(known));
  if (known < static_cast<size_t>(work.end)) {
    // The last token is still on the device.
    const SampledSequence& solo = sampled_sequences_.at(work.seq);
    SLUICE_CHECK_EQ(work.end, solo.length());
    SLUICE_CHECK_EQ(static_cast<size_t>(work.end), std::max(known, static_cast<size_t>(work.begin)) + 1);
    run.push_back(~solo.slot);
  }
  batch.add(run, work.begin, tables, work.rope_length);
  return true;
}

// Padding is computed like any other token, in blocks that nobody else uses.
void ModelExecutor::add_padding(Batch& batch, int64_t tokens) {
  const int size = options_.memory.block_size;
  const std::vector<Token> zeros(static_cast<size_t>(size), 0);
  for (int block = 0; tokens > 0; ++block) {
    std::vector<BlockId> ids;
    for (int blocks : options_.memory.blocks) ids.push_back(BlockId{blocks + block});
    std::vector<std::span<const BlockId>> tables;
    for (const BlockId& id : ids) tables.push_back({&id, 1});
    const auto count = static_cast<size_t>(std::min<int64_t>(tokens, size));
    batch.add(std::span(zeros).first(count), 0, tables);
    tokens -= static_cast<int64_t>(count);
  }
}

void ModelExecutor::run_padding(int64_t tokens) {
  for (; tokens > 0; tokens -= kPaddingTokens) {
    Batch batch(static_cast<int>(options_.memory.blocks.size()));
    add_padding(batch, std::min(tokens, kPaddingTokens));
    target_->forward(batch);
  }
}

Status ModelExecutor::check_files() {
  const TimePoint now = Clock::now();
  if (!files_ || now - files_checked_ < kFileCheckInterval) return files_;
  files_checked_ = now;
  files_ = model_.files.tensors.unchanged();
  if (files_ && contrast_) files_ = contrast_->model().files.tensors.unchanged();
  return files_;
}

void ModelExecutor::submit(const request::Step& step) {
  Submitted& submitted = submitted_.emplace_back();
  try {
    if (check_files()) {
      run(step, submitted);
    } else {
      submitted.failure = files_changed();
    }
  } catch (const std::bad_alloc&) {
    submitted.failure = out_of_memory();
  } catch (const std::exception& problem) {
    submitted.failure = Error{ErrorCode::Internal, fmt::format("the step failed: {}", problem.what())};
  }
  submitted.outcomes = std::exchange(outcomes_, {});
}

void ModelExecutor::run(const request::Step& step, Submitted& submitted) {
  for (SeqId seq : step.retire) retire(seq);
  for (const request::Admission& admission : step.admit) admit_or_starve(admission);
  for (const request::Fork& entry : step.forks) fork_or_starve(entry);
  for (const request::Lanes& lanes : step.lanes) name_lanes(lanes);
  const bool on_host = std::any_of(step.work.begin(), step.work.end(),
                                   [&](const request::Work& work) { return needs_host_sampling(work); });
  if (on_host) synchronize_all();
  target_->mover().run(step.moves);
  if (contrast_) contrast_->mover().run(step.moves);

  Batch batch(step.tables.groups);
  std::vector<OutputRows> wanted;
  bool single = true;  // every sequence runs one token
  for (size_t i = 0; i < step.work.size(); ++i) {
    const request::Work& work = step.work[i];
    const int row = batch.rows();
    if (!add_work(batch, step, i)) continue;
    single = single && work.end - work.begin == 1;
    const auto lane = lane_of_.find(work.seq);
    wanted.push_back({work, lane == lane_of_.end() ? work.seq : lane->second.first, row});
  }
  if (batch.rows() == 0) return;
  const int64_t padding = step.padding ? step.computed_tokens() - batch.rows() : 0;
  SLUICE_CHECK(padding <= 0 || options_.padding);
  run_padding(padding - kPaddingTokens);
  add_padding(batch, std::min(padding, kPaddingTokens));
  if (!ahead_) {
    const std::vector<int32_t> rows = read_rows(wanted);
    target_->forward(batch, rows);
    if (contrast_) contrast_->forward(batch, rows);
    return finish(wanted);
  }
  OverlappedStepRunner::SampleBatch to_sample = plan_samples(wanted, submitted);
  if (!on_host) {
    const bool repeats = single && !step.padding && to_sample.rows.size() == wanted.size();
    if (repeats) add_idle_rows(batch, to_sample);
    submitted.ticket = ahead_->run(*target_, batch, to_sample, repeats);
    return;
  }
  const std::vector<int32_t> rows = read_rows(wanted);
  target_->forward(batch, rows);
  if (contrast_) contrast_->forward(batch, rows);
  submitted.ticket = ahead_->sample(*target_, to_sample);
  std::erase_if(wanted, [&](const OutputRows& item) { return !needs_host_sampling(item.work); });
  finish(wanted);
}

Result<std::vector<request::Outcome>> ModelExecutor::collect() {
  SLUICE_CHECK(!submitted_.empty());
  Submitted& oldest = submitted_.front();
  try {
    if (!oldest.failure) synchronize(oldest);
  } catch (const std::bad_alloc&) {
    oldest.failure = out_of_memory();
  } catch (const std::exception& problem) {
    oldest.failure = Error{ErrorCode::Internal, fmt::format("the step failed: {}", problem.what())};
  }
  const Submitted done = std::move(submitted_.front());
  submitted_.pop_front();
  if (!check_files()) return files_changed();
  if (done.failure) return *done.failure;
  return std::move(done.outcomes);
}

Status ModelExecutor::reset() {
  for (const auto& [seq, solo] : sampled_sequences_)
    if (solo.slot > 0) ahead_->free_slot(solo.slot);
  sampled_sequences_.clear();
  starved_.clear();
  pooled_.clear();
  groups_.clear();
  lane_of_.clear();
  outcomes_.clear();
  submitted_.clear();
  target_->mover().clear();
  if (contrast_) contrast_->mover().clear();
  if (!files_) return files_;
  if (!ahead_) return {};
  if (const std::string reason = ahead_->device().failure(); !reason.empty())
    return Error{ErrorCode::Unavailable, "the device has failed: " + reason};
  return {};
}

}  // namespace sluice::runtime
