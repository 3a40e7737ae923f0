// The parts of ModelExecutor that read a step's logits and hidden states on the host: tokens sampled there, searches,
// vectors of prompts, log-probabilities of prompts.
#include <algorithm>
#include <new>
#include <numeric>

#include "base/system/memory.h"
#include "runtime/model_executor.h"
#include "sampling/contrastive.h"

namespace sluice::runtime {

namespace {

constexpr size_t kRowsAtOnce = 32;  // bounds the logits held at once

}  // namespace

std::vector<int32_t> ModelExecutor::read_rows(std::span<const OutputRows> wanted) const {
  std::vector<int32_t> rows;
  for (const OutputRows& item : wanted) {
    const auto group = groups_.find(item.owner);
    const bool all = group != groups_.end() && group->second.search->wants_context();
    for (int position = all ? item.work.begin : item.work.sample_from; position < item.work.end; ++position)
      rows.push_back(item.first_row + position - item.work.begin);
  }
  return rows;
}

void ModelExecutor::finish(std::vector<OutputRows>& wanted) {
  const auto others = std::stable_partition(wanted.begin(), wanted.end(), [&](const OutputRows& item) {
    return sampled_sequences_.contains(item.owner);
  });
  finish_all_sampled({wanted.begin(), others});
  const auto groups = std::stable_partition(
      others, wanted.end(), [&](const OutputRows& item) { return pooled_.contains(item.owner); });
  for (auto item = others; item != groups; ++item) finish_pooled(*item, pooled_.at(item->owner));
  for (auto begin = groups; begin != wanted.end();) {
    const auto end =
        std::find_if(begin, wanted.end(), [&](const OutputRows& item) { return item.owner != begin->owner; });
    finish_group(begin->owner, {begin, end});
    begin = end;
  }
}

void ModelExecutor::read_prompt_logprobs(const OutputRows& wanted, const request::Request& request,
                                         std::span<const Token> tokens, request::Outcome& outcome) {
  if (!request.sampling().prompt_logprobs) return;
  // The logits at position p are about the token at p + 1.
  const int end = std::min(wanted.work.end, static_cast<int>(request.prompt.size()) - 1);
  std::vector<int32_t> rows;
  const auto vocab = static_cast<size_t>(model_.spec().vocab);
  for (int p = wanted.work.sample_from; p < end; p += static_cast<int>(kRowsAtOnce)) {
    const int count = std::min(static_cast<int>(kRowsAtOnce), end - p);
    rows.resize(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), wanted.first_row + p - wanted.work.begin);
    target_->read(rows, true, rows_);
    for (int i = 0; i < count; ++i) {
      const std::span<const float> row =
          std::span(rows_.logits).subspan(static_cast<size_t>(i) * vocab, vocab);
      const Token token = tokens[static_cast<size_t>(p + i + 1)];
      auto found =
          sampling::token_logprobs(row, token, *request.sampling().prompt_logprobs, workspace_.buffer);
      if (!found) {
        outcome.result = found.error();
        return;
      }
      outcome.prompt_logprobs.push_back(std::move(*found));
    }
  }
}

Result<request::Sampled> ModelExecutor::sample(SampledSequence& solo, LogitsRow row) {
  if (const auto* method = std::get_if<request::ContrastiveDecoding>(&solo.request->sampling().method)) {
    if (!contrast_)
      return Error{ErrorCode::InvalidArgument, "contrastive decoding needs a second model (--amateur)",
                   "contrastive_decoding"};
    if (Status status = sampling::combine_contrastive(row.model, row.amateur, *method); !status)
      return status.error();
  }
  return solo.sampler.sample(row.model, workspace_);
}

// The rows of many sequences are read at once: the output matrix is the largest of small models, and is then streamed
// once for all of them.
void ModelExecutor::finish_all_sampled(std::span<const OutputRows> wanted) {
  const auto vocab = static_cast<size_t>(model_.spec().vocab);
  for (; !wanted.empty(); wanted = wanted.subspan(std::min(kRowsAtOnce, wanted.size()))) {
    const std::span<const OutputRows> part = wanted.first(std::min(kRowsAtOnce, wanted.size()));
    const auto to_sample = [&](const OutputRows& item) {
      return samples(item.work, sampled_sequences_.at(item.owner));
    };
    std::vector<int32_t> rows;
    for (const OutputRows& item : part)
      if (to_sample(item)) rows.push_back(item.first_row + item.work.end - 1 - item.work.begin);
    if (!rows.empty()) target_->read(rows, true, sampled_rows_);
    if (!rows.empty() && contrast_) contrast_->read(rows, true, contrast_rows_);
    size_t next = 0;
    for (const OutputRows& item : part) {
      std::optional<LogitsRow> row;
      if (to_sample(item)) {
        row = {std::span(sampled_rows_.logits).subspan(next * vocab, vocab), {}};
        if (contrast_) row->amateur = std::span(contrast_rows_.logits).subspan(next * vocab, vocab);
        ++next;
      }
      finish_sampled(item, sampled_sequences_.at(item.owner), row);
    }
  }
}

void ModelExecutor::take_rows(const OutputRows& wanted, SampledSequence& solo, std::optional<LogitsRow> row,
                              request::Outcome& outcome) {
  read_prompt_logprobs(wanted, *solo.request, solo.tokens, outcome);
  if (std::holds_alternative<Error>(outcome.result) || !row) return;
  Result<request::Sampled> sampled = sample(solo, *row);
  if (sampled) {
    solo.take(sampled->token);
    std::get<request::Tokens>(outcome.result).tokens.push_back(std::move(*sampled));
  } else {
    outcome.result = sampled.error();
  }
}

void ModelExecutor::finish_sampled(const OutputRows& wanted, SampledSequence& solo,
                                   std::optional<LogitsRow> row) {
  const request::Work& work = wanted.work;
  if (work.sample_from >= work.end) return;
  request::Outcome outcome{work.seq, request::Tokens{}, {}};
  try {
    take_rows(wanted, solo, row, outcome);
  } catch (const std::bad_alloc&) {
    outcome = {work.seq, out_of_memory(), {}};
  }
  if (const auto* error = std::get_if<Error>(&outcome.result)) solo.failed = *error;
  outcomes_.push_back(std::move(outcome));
}

// Hidden states of the work's positions from `begin` on.
std::span<const float> ModelExecutor::read_hidden(const OutputRows& wanted, int begin) {
  std::vector<int32_t> rows(static_cast<size_t>(wanted.work.end - begin));
  std::iota(rows.begin(), rows.end(), wanted.first_row + begin - wanted.work.begin);
  target_->read(rows, false, rows_);
  return rows_.hidden;
}

void ModelExecutor::finish_pooled(const OutputRows& wanted, PooledSequence& pooled) {
  const request::Work& work = wanted.work;
  if (work.sample_from >= work.end) return;
  pooled.pool.add(read_hidden(wanted, work.sample_from));
  if (work.end < static_cast<int>(pooled.request->prompt.size())) return;
  Result<std::vector<float>> vector = pooled.pool.vector();
  if (vector) {
    outcomes_.push_back({work.seq, request::Pooled{std::move(*vector)}, {}});
  } else {
    outcomes_.push_back({work.seq, vector.error(), {}});
  }
}

void ModelExecutor::finish_group(SeqId owner, std::span<const OutputRows> lanes) {
  Group& group = groups_.at(owner);
  if (group.search->wants_context() && lanes.size() == 1 && group.search->lanes().size() == 1)
    group.search->take_context(lanes[0].work.begin, read_hidden(lanes[0], lanes[0].work.begin));
  request::Outcome outcome{owner, request::Tokens{}, {}};
  std::vector<int32_t> rows;
  for (const OutputRows& lane : lanes) {
    const int length = static_cast<int>(tokens_of(lane.work.seq).size());
    if (lane.work.sample_from < lane.work.end && lane.work.end == length)
      rows.push_back(lane.first_row + lane.work.end - 1 - lane.work.begin);
  }
  if (lanes.size() == 1 && lanes[0].work.sample_from < lanes[0].work.end)
    read_prompt_logprobs(lanes[0], *group.request, tokens_of(lanes[0].work.seq), outcome);
  const bool failed = std::holds_alternative<Error>(outcome.result);
  if (!failed && rows.size() == group.search->lanes().size()) {
    target_->read(rows, true, rows_);
    const auto vocab = static_cast<size_t>(model_.spec().vocab), dim = static_cast<size_t>(model_.spec().dim);
    std::vector<LaneRow> lane_rows;
    for (size_t i = 0; i < rows.size(); ++i)
      lane_rows.push_back(
          {std::span(rows_.logits).subspan(i * vocab, vocab), std::span(rows_.hidden).subspan(i * dim, dim)});
    Result<request::SearchMove> move = group.search->advance(lane_rows, workspace_);
    if (move) {
      outcome.result = std::move(*move);
    } else {
      outcome.result = move.error();
    }
  } else if (!failed && outcome.prompt_logprobs.empty()) {
    return;
  }
  outcomes_.push_back(std::move(outcome));
}

}  // namespace sluice::runtime
