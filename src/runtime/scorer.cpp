#include "runtime/scorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice::runtime {

namespace {

constexpr int kBlockSize = 16;
constexpr size_t kScoredAtOnce = 64;  // bounds the logits on the device

// Of which ranks that share a KV cache have equal parts.
int scorer_block_size(const models::Model& model) {
  return kBlockSize * (model.group ? model.group->placement().context.size : 1);
}

int scorer_block_count(const models::Model& model, int capacity) {
  return (capacity + scorer_block_size(model) - 1) / scorer_block_size(model);
}

KvMemoryOptions memory_options(const models::Model& model, int capacity, DType type) {
  KvMemoryOptions options{.block_size = scorer_block_size(model), .type = type};
  const KvGroups groups = kv_groups(model.spec());
  options.blocks.assign(groups.count(), scorer_block_count(model, capacity));
  if (groups.states) options.blocks[static_cast<size_t>(*groups.states)] = 1;
  return options;
}

}  // namespace

Scorer::Scorer(const models::Model& model, int capacity, std::optional<DType> kv_type)
    : model_(model),
      capacity_(capacity),
      // Without lower tiers there is nothing that could fail.
      runner_(
          ModelRunner::make(
              model, memory_options(model, capacity, kv_type.value_or(model.backend->activation_type())), {})
              .value()) {
  for (size_t group = 0; group < kv_groups(model.spec()).count(); ++group) {
    std::vector<int32_t>& table =
        tables_.emplace_back(static_cast<size_t>(scorer_block_count(model, capacity)));
    std::iota(table.begin(), table.end(), 0);
  }
}

// Keys that the new tokens need turned otherwise are computed again.
void Scorer::drop_outgrown(int length) {
  if (length_ == 0) rope_length_ = length;
  const sched::RopeSets sets = rope_sets(model_.spec());
  if (sets.outgrown == sched::RopeSets::Outgrown::Kept || sets.of(length) == sets.of(rope_length_)) return;
  rope_length_ = length;
  length_ = 0;
}

Result<std::vector<float>> Scorer::run(std::span<const Token> added, bool all) {
  const int count = static_cast<int>(added.size());
  if (length_ + count > capacity_)
    return Error{ErrorCode::LimitExceeded, fmt::format("{} tokens, limit {}", length_ + count, capacity_)};
  if (const int limit = model_.spec().context_limit; limit > 0 && length_ + count > limit)
    return Error{
        ErrorCode::Unsupported,
        fmt::format("{} positions: beyond {} the model's layers choose what they attend to, which is "
                    "not computed on this device",
                    length_ + count, limit)};
  for (Token token : added)
    if (token < 0 || token >= model_.spec().vocab)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("token {}, the vocabulary has {}", token, model_.spec().vocab)};

  tokens_.resize(static_cast<size_t>(length_));
  tokens_.insert(tokens_.end(), added.begin(), added.end());
  drop_outgrown(length_ + count);
  const std::span<const Token> tokens = std::span<const Token>(tokens_).subspan(static_cast<size_t>(length_));
  const auto run = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> positions(tokens.size()), rope_lengths;
  std::iota(positions.begin(), positions.end(), length_);
  for (const int32_t position : positions) rope_lengths.push_back(std::max(rope_length_, position + 1));
  const std::vector<int32_t> query_begin{0, run};
  std::vector<kernels::RaggedBatch::BlockTable> tables;
  for (const std::vector<int32_t>& table : tables_) tables.push_back({table, static_cast<int>(table.size())});
  const std::vector<int32_t> state_from{length_ > 0 ? 0 : -1}, save_begin{0, 1};
  const kernels::StateBatch::Save save{run, 0};
  const Input input = std::exchange(input_, {});
  const kernels::RaggedBatch batch{query_begin,  positions,  tables,
                                   rope_lengths, input.seen, input.rope_positions};
  std::vector<int32_t> rows(static_cast<size_t>(all ? count : 1));
  std::iota(rows.begin(), rows.end(), all ? run - count : run - 1);
  runner_->forward({.tokens = tokens,
                    .batch = batch,
                    .states = {query_begin, state_from, save_begin, {&save, 1}},
                    .rows = rows,
                    .embedded = input.embedded});
  const auto vocab = static_cast<size_t>(model_.spec().vocab);
  std::vector<float> logits(rows.size() * vocab);
  ModelRunner::Rows read;
  for (size_t begin = 0; begin < rows.size(); begin += kScoredAtOnce) {
    const size_t slice = std::min(kScoredAtOnce, rows.size() - begin);
    runner_->read(std::span(rows).subspan(begin, slice), {.logits = true}, read);
    std::copy(read.logits.begin(), read.logits.end(),
              logits.begin() + static_cast<std::ptrdiff_t>(begin * vocab));
  }
  length_ += run;
  return logits;
}

Result<std::vector<float>> Scorer::append(std::span<const Token> tokens) {
  return run(tokens, true);
}
Result<std::vector<float>> Scorer::append_last(std::span<const Token> tokens) {
  return run(tokens, false);
}

}  // namespace sluice::runtime
