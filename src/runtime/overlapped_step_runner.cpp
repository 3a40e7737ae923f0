#include "runtime/overlapped_step_runner.h"

#include <algorithm>
#include <cmath>

#include "sampling/philox.h"

namespace sluice::runtime {

int padded_rows(int rows) {
  const auto up = [&](int multiple) { return (rows + multiple - 1) / multiple * multiple; };
  if (rows <= 2) return rows;
  if (rows <= 4) return 4;
  if (rows <= 32) return up(8);
  if (rows <= 128) return up(16);
  return rows <= 512 ? up(32) : up(128);
}

PaddedShape padded_shape(int sequences, int rows) {
  const int wanted = padded_rows(sequences);
  return {wanted + 1, padded_rows(rows + wanted - sequences + 1)};
}

ModelRunner::Outputs OverlappedStepRunner::forward(ModelRunner& runner, Batch& batch,
                                                   const SampleBatch& to_sample,
                                                   std::span<const int32_t> kept, bool replays) {
  ModelRunner::Outputs outputs;
  const auto body = [&] {
    runner.forward(batch, kept);
    if (!to_sample.rows.empty()) outputs = runner.outputs(to_sample.rows);
  };
  if (replays) {
    device_.run_step(body);
    note_begun();
  } else {
    note_begun();  // the device runs the first kernels while the others are submitted
    body();
  }
  return outputs;
}

void OverlappedStepRunner::sample(const ModelRunner::Outputs& outputs, const SampleBatch& to_sample) {
  if (to_sample.rows.empty()) return;
  const bool narrow = to_sample.vocab > 0 && to_sample.vocab < outputs.logits.dim(1);
  const TensorView logits = narrow ? outputs.logits.columns(0, to_sample.vocab) : outputs.logits;
  device_.sample(logits, to_sample.how, to_sample.edits, to_sample.masks);
}

ModelRunner::Outputs OverlappedStepRunner::run(ModelRunner& runner, Batch& batch,
                                               const SampleBatch& to_sample, std::span<const int32_t> kept) {
  const ModelRunner::Outputs outputs = forward(runner, batch, to_sample, kept, false);
  sample(outputs, to_sample);
  return outputs;
}

ModelRunner::Outputs OverlappedStepRunner::replay(ModelRunner& runner, Batch& batch,
                                                  const SampleBatch& to_sample) {
  ModelRunner::Outputs outputs;
  const std::optional<TimePoint> before = begun_;
  device_.run_step([&] { outputs = run(runner, batch, to_sample, to_sample.rows); });
  begun_ = before;  // recorded kernels start together, after all of them
  note_begun();
  return outputs;
}

std::optional<kernels::SampleArgs> sample_args(const sampling::TokenSampler& sampler, int ahead, int slot) {
  const request::Sampling* sampling = sampler.plain_sampling();
  if (sampling == nullptr || sampling->typical_p < 1) return std::nullopt;
  const std::optional<int> logprobs = sampler.wanted_logprobs();
  if (logprobs.value_or(0) > kernels::SampledToken::kTop) return std::nullopt;
  kernels::SampleArgs row{.floor = -INFINITY, .slot = slot, .logprobs = logprobs.value_or(-1)};
  if (sampling->temperature < sampling::kGreedyTemperature) return row;
  row.uniform = sampling::uniform(sampler.next_random(ahead));
  row.inverse_temperature = static_cast<float>(1 / sampling->temperature);
  if (sampling->min_p > 0) row.floor = static_cast<float>(sampling->temperature * std::log(sampling->min_p));
  row.top_p = static_cast<float>(sampling->top_p);
  row.top_k = std::max(sampling->top_k, 0);
  return row;
}

Result<request::Sampled> sampled_from(const kernels::SampledToken& from_device, size_t position) {
  if (from_device.status == kernels::SampledToken::NotFinite)
    return Error{ErrorCode::Numerical, "the logits hold NaN or infinity"};
  if (from_device.status == kernels::SampledToken::Nothing)
    return Error{ErrorCode::Numerical, "the logits of all tokens are -inf"};
  if (from_device.status == kernels::SampledToken::Excluded) return sampling::no_token_left(position);
  request::Sampled sampled{.token = from_device.token, .logprob = from_device.logprob, .top = {}};
  for (int i = 0; i < from_device.top; ++i)
    sampled.top.push_back({from_device.top_tokens[i], from_device.top_logprobs[i]});
  std::sort(sampled.top.begin(), sampled.top.end(),
            [](const request::TokenLogprob& a, const request::TokenLogprob& b) {
              return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
            });
  return sampled;
}

}  // namespace sluice::runtime
