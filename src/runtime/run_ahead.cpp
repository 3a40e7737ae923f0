#include "runtime/run_ahead.h"

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

RunAhead::RunAhead(kernels::Accelerator& device) : device_(device) {}

std::optional<int> RunAhead::take_slot() {
  if (!free_.empty()) {
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (next_ >= device_.slots()) return std::nullopt;
  return next_++;
}

void RunAhead::draw_rows(ModelRunner& runner, const Draws& draws) {
  if (!draws.rows.empty()) device_.draw(runner.logits(draws.rows), draws.how, draws.edits);
}

int64_t RunAhead::run(ModelRunner& runner, Batch& batch, const Draws& draws, bool repeats) {
  const auto body = [&] {
    runner.forward(batch, draws.rows);
    draw_rows(runner, draws);
  };
  if (repeats) {
    device_.run_step(body);
  } else {
    body();
  }
  return device_.send_drawn(draws.rows.size());
}

int64_t RunAhead::draw(ModelRunner& runner, const Draws& draws) {
  draw_rows(runner, draws);
  return device_.send_drawn(draws.rows.size());
}

std::optional<kernels::DrawRow> draw_row(const sampling::TokenSampler& sampler, int ahead, int slot) {
  const request::Sampling* sampling = sampler.plain_sampling();
  if (sampling == nullptr || sampling->typical_p < 1) return std::nullopt;
  const std::optional<int> logprobs = sampler.wanted_logprobs();
  if (logprobs.value_or(0) > kernels::DrawnToken::kTop) return std::nullopt;
  kernels::DrawRow row{.floor = -INFINITY, .slot = slot, .logprobs = logprobs.value_or(-1)};
  if (sampling->temperature < sampling::kGreedyTemperature) return row;
  row.uniform = sampling::uniform(sampler.next_draw(ahead));
  row.inverse_temperature = static_cast<float>(1 / sampling->temperature);
  if (sampling->min_p > 0) row.floor = static_cast<float>(sampling->temperature * std::log(sampling->min_p));
  row.top_p = static_cast<float>(sampling->top_p);
  row.top_k = std::max(sampling->top_k, 0);
  return row;
}

Result<request::Sampled> sampled_from(const kernels::DrawnToken& drawn, size_t position) {
  if (drawn.status == kernels::DrawnToken::NotFinite)
    return Error{ErrorCode::Numerical, "the logits hold NaN or infinity"};
  if (drawn.status == kernels::DrawnToken::Nothing)
    return Error{ErrorCode::Numerical, "the logits of all tokens are -inf"};
  if (drawn.status == kernels::DrawnToken::Excluded) return sampling::no_token_left(position);
  request::Sampled sampled{.token = drawn.token, .logprob = drawn.logprob, .top = {}};
  for (int i = 0; i < drawn.top; ++i) sampled.top.push_back({drawn.top_tokens[i], drawn.top_logprobs[i]});
  std::sort(sampled.top.begin(), sampled.top.end(),
            [](const request::TokenLogprob& a, const request::TokenLogprob& b) {
              return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
            });
  return sampled;
}

}  // namespace sluice::runtime
