// The parts of ModelExecutor that only a device which works beside the host has use for.
#include "runtime/model_executor.h"

namespace sluice::runtime {

bool ModelExecutor::samples(const request::Work& work, const Solo& solo) const {
  return work.sample_from < work.end && work.end == solo.length();
}

// Whether the host has something to read of this work's logits or hidden states.
bool ModelExecutor::host_draws(const request::Work& work) const {
  const auto found = solos_.find(work.seq);
  if (found == solos_.end() || amateur_) return true;
  const Solo& solo = found->second;
  if (work.sample_from >= work.end) return false;
  const bool prompt = work.begin < static_cast<int>(solo.request->prompt.size());
  return solo.slot == 0 || (prompt && solo.request->sampling().prompt_logprobs);
}

RunAhead::Draws ModelExecutor::plan_draws(std::span<const Wanted> wanted, Submitted& submitted) {
  RunAhead::Draws draws;
  for (const Wanted& item : wanted) {
    if (host_draws(item.work)) continue;
    Solo& solo = solos_.at(item.owner);
    if (!samples(item.work, solo)) continue;
    std::optional<kernels::DrawRow> how = draw_row(solo.sampler, solo.drawn, solo.slot);
    SLUICE_CHECK(how.has_value());
    solo.edits.fill(*how, solo.sampler.output().size(), solo.drawn);
    draws.add(item.first_row + item.work.end - 1 - item.work.begin, *how, solo.edits.list());
    submitted.draws.push_back(item.work.seq);
    ++solo.drawn;
  }
  return draws;
}

// Rows that nobody wants, each a sequence of one token in a block that nobody else uses.
void ModelExecutor::add_idle_rows(Batch& batch, RunAhead::Draws& draws) {
  std::vector<BlockId> blocks;
  for (const int count : options_.memory.blocks) blocks.push_back(BlockId{count});
  std::vector<std::span<const BlockId>> tables;
  for (const BlockId& block : blocks) tables.push_back({&block, 1});
  const Token token = 0;
  for (int row = batch.rows(); row < padded_rows(row); ++row) {
    draws.add(row, {});
    batch.add({&token, 1}, 0, tables);
  }
}

void ModelExecutor::settle(Submitted& submitted) {
  if (!submitted.ticket) return;
  const std::span<const kernels::DrawnToken> drawn = ahead_->wait(*submitted.ticket);
  submitted.ticket.reset();
  for (size_t i = 0; i < submitted.draws.size(); ++i) {
    const auto found = solos_.find(submitted.draws[i]);
    if (found == solos_.end()) continue;  // retired meanwhile
    Solo& solo = found->second;
    --solo.drawn;
    request::Outcome outcome{submitted.draws[i], request::Tokens{}, {}};
    Result<request::Sampled> sampled =
        solo.failed ? *solo.failed : sampled_from(drawn[i], solo.sampler.output().size());
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

void ModelExecutor::settle_all() {
  for (Submitted& submitted : submitted_) settle(submitted);
}

}  // namespace sluice::runtime
