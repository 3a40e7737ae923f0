#include "runtime/warm_up.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::runtime {

namespace {

// Sizes whose products are tuned; others use what the next larger of these found.
constexpr int kTunedRows[] = {8, 32, 64, 128, 256};
constexpr int kLeastTunedTokens = 512;
// Steps with drafts that are recorded: so many sequences and rows at most, and of the draft model so many rows of each.
constexpr int kMostDraftingSequences = 32, kMostFilledRows = 256, kRowsLeftOver = 3;

// `sequences` that run `tokens` in all, each from its first position, and sample one token each.
struct Trial {
  Batch batch;
  OverlappedStepRunner::SampleBatch to_sample;

  Trial(const WarmUp& warm, int sequences, int tokens) : Trial(warm.runner, warm.blocks, sequences, tokens) {}
  Trial(ModelRunner& runner, std::span<const BlockId> blocks, int sequences, int tokens)
      : batch(static_cast<int>(blocks.size()), runner.memory().state_group()) {
    const int longest = tokens - (sequences - 1) * (tokens / sequences);
    const int block_size = runner.memory().block_size();
    std::vector<std::vector<BlockId>> rows;
    for (const BlockId block : blocks)
      rows.emplace_back(static_cast<size_t>((longest + block_size - 1) / block_size), block);
    const std::vector<std::span<const BlockId>> tables(rows.begin(), rows.end());
    const std::vector<Token> zeros(static_cast<size_t>(longest), 0);
    for (int s = 0; s < sequences; ++s) {
      const int count = s == 0 ? longest : tokens / sequences;
      batch.add(std::span(zeros).first(static_cast<size_t>(count)), 0, tables);
      to_sample.add(batch.rows() - 1, {});
    }
  }
};

int most_sampled(StepSize size) {
  const int filled = std::min(padded_shape(size.sequences, size.rows).rows, kMostRecordedRows);
  return std::max({padded_rows(size.sequences), size.rows, size.each > 1 ? filled : 0});
}

void run_trial(const WarmUp& warm, int sequences, int tokens, bool repeats) {
  Trial trial(warm, sequences, tokens);
  if (repeats) {
    warm.ahead.replay(warm.runner, trial.batch, trial.to_sample);
  } else {
    warm.ahead.run(warm.runner, trial.batch, trial.to_sample, trial.to_sample.rows);
  }
  warm.ahead.wait(warm.ahead.send(trial.to_sample));
}

// A step of the shape, as the target verifies drafts or as the draft model runs what the last step left over.
void run_filled_trial(const WarmUp& warm, PaddedShape shape) {
  Trial trial(warm, shape.sequences, shape.rows);
  OverlappedStepRunner::SampleBatch& to_sample = trial.to_sample;
  to_sample.clear();
  if (warm.drafts) {
    for (int row = 0; row < shape.sequences - 1; ++row) to_sample.add(row, {});
    warm.ahead.replay(warm.runner, trial.batch, to_sample);
  } else {
    for (int row = 0; row < shape.rows; ++row) to_sample.add(row, {});
    const auto outputs = warm.ahead.forward(warm.runner, trial.batch, to_sample, to_sample.rows, true);
    warm.ahead.sample(outputs, to_sample);
  }
  warm.ahead.wait(warm.ahead.send(to_sample));
}

// Of few sequences: where there are many, drafts seldom pay.
void record_filled_steps(const WarmUp& warm, StepSize size) {
  const int most = std::min(padded_rows(size.sequences), kMostDraftingSequences);
  for (int sequences = 1; sequences <= most; sequences = padded_rows(sequences + 1)) {
    const int each = warm.drafts ? kRowsLeftOver : size.each;
    const int largest = padded_shape(sequences, std::min(sequences * each, kMostFilledRows)).rows;
    for (PaddedShape shape = padded_shape(sequences, sequences + 1); shape.rows <= largest;
         shape.rows = padded_rows(shape.rows + 1)) {
      run_filled_trial(warm, shape);  // runs
      run_filled_trial(warm, shape);  // is recorded
    }
  }
}

}  // namespace

void run_largest_step(const WarmUp& warm, StepSize size) {
  const int rows = most_sampled(size);
  run_trial(warm, rows, std::max(size.tokens, rows), false);
}

void run_common_steps(std::span<const WarmUp> all, StepSize size) {
  const int most = padded_rows(size.sequences);
  for (const WarmUp& warm : all) {
    for (int tokens = size.tokens; tokens >= kLeastTunedTokens; tokens /= 4)
      run_trial(warm, 1, tokens, false);
    for (const int rows : kTunedRows)
      if (rows <= most_sampled(size)) run_trial(warm, rows, rows, true);
  }
  all.front().ahead.device().set_tuning(false);
  for (const WarmUp& warm : all) {
    for (int rows = 1; rows <= most; rows = padded_rows(rows + 1)) {
      run_trial(warm, rows, rows, true);  // runs
      run_trial(warm, rows, rows, true);  // is recorded
    }
    if (size.each > 1) record_filled_steps(warm, size);
  }
}

namespace {

// The largest step of ranks on devices, whose logits are read on the host, so many rows at once.
void run_largest_of_ranks(ModelRunner& runner, std::span<const BlockId> blocks, StepSize size) {
  constexpr size_t kRowsReadAtOnce = 32;
  const int sequences = most_sampled(size);
  Trial trial(runner, blocks, sequences, std::max(size.tokens, sequences));
  const std::span<const int32_t> rows = trial.to_sample.rows;
  runner.forward(trial.batch, rows);
  ModelRunner::Rows read;
  runner.read(rows.first(std::min(kRowsReadAtOnce, rows.size())), {.logits = true}, read);
}

}  // namespace

Result<int64_t> room_for_kv(const models::Model& model, const KvMemoryOptions& kv, StepSize size,
                            double share) {
  kernels::AsyncDevice* device = model.backend->async_device();
  SLUICE_CHECK(device != nullptr);
  constexpr double kGiB = 1 << 30;
  const kernels::AsyncDevice::Room before = device->room();
  const auto sizes = [&](int64_t step) {
    return fmt::format(
        "{:.1f} GiB in all, of which --gpu-memory {:g} may be used; {:.1f} GiB taken by weights and "
        "others, {:.1f} GiB by a step of {} tokens and {} sequences",
        static_cast<double>(before.total_bytes) / kGiB, share,
        static_cast<double>(before.total_bytes - before.free_bytes) / kGiB, static_cast<double>(step) / kGiB,
        size.tokens, size.sequences);
  };
  try {
    KvMemoryOptions least = kv;
    least.blocks.assign(kv_groups(model.spec()).count(), 1);
    Result<std::unique_ptr<ModelRunner>> runner = ModelRunner::make(model, least, {});
    if (!runner) return runner.error();
    const std::vector<BlockId> blocks(least.blocks.size(), BlockId{0});
    if (model.group) {
      run_largest_of_ranks(**runner, blocks, size);
    } else {
      OverlappedStepRunner ahead(*device);
      run_largest_step({ahead, **runner, blocks}, size);
    }
    const kernels::AsyncDevice::Room after = device->room();
    const auto taken = static_cast<int64_t>(before.free_bytes) - static_cast<int64_t>(after.free_bytes);
    const auto allowed = static_cast<int64_t>(share * static_cast<double>(after.total_bytes));
    const int64_t used = static_cast<int64_t>(after.total_bytes) - static_cast<int64_t>(after.free_bytes);
    const int64_t left = allowed - used + (*runner)->memory().bytes();
    if (left <= 0) return Error{ErrorCode::Unavailable, "no device memory is left for KV: " + sizes(taken)};
    return left / (model.group ? model.group->sharing_device() : 1);
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Unavailable, fmt::format("{} ({})", problem.what(), sizes(0))};
  }
}

}  // namespace sluice::runtime
