// The parts of ModelExecutor that only a device which works beside the host has use for.
#include "runtime/model_executor.h"

namespace sluice::runtime {

bool ModelExecutor::samples(const request::Work& work, const SampledSequence& solo) const {
  return work.sample_from < work.end && work.end == solo.length();
}

// Whether the host has something to read of this work's logits or hidden states.
bool ModelExecutor::needs_host_sampling(const request::Work& work) const {
  const auto found = sampled_sequences_.find(work.seq);
  if (found == sampled_sequences_.end() || contrast_) return true;
  const SampledSequence& solo = found->second;
  if (work.sample_from >= work.end) return false;
  const bool prompt = work.begin < static_cast<int>(solo.request->prompt.size());
  return solo.slot == 0 || (prompt && solo.request->sampling().prompt_logprobs);
}

OverlappedStepRunner::SampleBatch ModelExecutor::plan_samples(std::span<const OutputRows> wanted,
                                                              Submitted& submitted) {
  OverlappedStepRunner::SampleBatch to_sample;
  for (const OutputRows& item : wanted) {
    if (needs_host_sampling(item.work)) continue;
    SampledSequence& solo = sampled_sequences_.at(item.owner);
    if (!samples(item.work, solo)) continue;
    std::optional<kernels::SampleArgs> how = sample_args(solo.sampler, solo.pending, solo.slot);
    SLUICE_CHECK(how.has_value());
    solo.edits.fill(*how, solo.sampler.output().size(), solo.pending);
    to_sample.add(item.first_row + item.work.end - 1 - item.work.begin, *how, solo.edits.list());
    submitted.to_sample.push_back(item.work.seq);
    ++solo.pending;
  }
  return to_sample;
}

// Rows that nobody wants, each a sequence of one token in a block that nobody else uses.
void ModelExecutor::add_idle_rows(Batch& batch, OverlappedStepRunner::SampleBatch& to_sample) {
  std::vector<BlockId> blocks;
  for (const int count : options_.memory.blocks) blocks.push_back(BlockId{count});
  std::vector<std::span<const BlockId>> tables;
  for (const BlockId& block : blocks) tables.push_back({&block, 1});
  const Token token = 0;
  for (int row = batch.rows(); row < padded_rows(row); ++row) {
    to_sample.add(row, {});
    batch.add({&token, 1}, 0, tables);
  }
}

void ModelExecutor::synchronize(Submitted& submitted) {
  if (!submitted.ticket) return;
  const std::span<const kernels::SampledToken> from_device = ahead_->wait(*submitted.ticket);
  submitted.ticket.reset();
  for (size_t i = 0; i < submitted.to_sample.size(); ++i) {
    const auto found = sampled_sequences_.find(submitted.to_sample[i]);
    if (found == sampled_sequences_.end()) continue;  // retired meanwhile
    SampledSequence& solo = found->second;
    --solo.pending;
    request::Outcome outcome{submitted.to_sample[i], request::Tokens{}, {}};
    Result<request::Sampled> sampled =
        solo.failed ? *solo.failed : sampled_from(from_device[i], solo.sampler.output().size());
    if (sampled) {
      solo.take(sampled->token);
      std::get<request::Tokens>(outcome.result).tokens.push_back(std::move(*sampled));
    } else {
      solo.failed = sampled.error();
      outcome.result = sampled.error();
    }
    submitted.outcomes.push_back(std::move(outcome));
  }
}

void ModelExecutor::synchronize_all() {
  for (Submitted& submitted : submitted_) synchronize(submitted);
}

}  // namespace sluice::runtime
