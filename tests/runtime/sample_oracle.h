// How a device samples (kernels/sample.h), in plain loops: what devices and the fake one of the tests are held to. The
// meaning of sampling is sampling::TokenSampler, which the tests of runtime compare it with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/sample.h"

namespace sluice::kernels::oracle {

// Tokens by falling logit, the lower first among equals.
inline std::vector<int32_t> ranked(std::span<const float> logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return order;
}

inline void report(std::span<const float> logits, const std::vector<int32_t>& order, int wanted,
                   SampledToken& out) {
  const double largest = logits[static_cast<size_t>(order[0])];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  const auto logprob = [&](int32_t token) {
    return static_cast<float>(logits[static_cast<size_t>(token)] - largest - std::log(total));
  };
  out.logprob = logprob(out.token);
  out.top = std::min({wanted, SampledToken::kTop, static_cast<int>(order.size())});
  for (int i = 0; i < out.top; ++i) {
    out.top_tokens[i] = order[static_cast<size_t>(i)];
    out.top_logprobs[i] = logprob(out.top_tokens[i]);
  }
}

inline int32_t choose(std::span<const float> logits, const std::vector<int32_t>& order,
                      const SampleArgs& row) {
  const float largest = logits[static_cast<size_t>(order[0])];
  const auto logit = [&](size_t rank) { return logits[static_cast<size_t>(order[rank])]; };
  const auto weight = [&](int32_t token) {
    return std::exp((logits[static_cast<size_t>(token)] - largest) * row.inverse_temperature);
  };
  size_t kept = order.size();
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < kept) {
    kept = static_cast<size_t>(row.top_k);
    while (kept < order.size() && logit(kept) == logit(static_cast<size_t>(row.top_k) - 1)) ++kept;
  }
  while (kept > 1 && logit(kept - 1) < largest + row.floor) --kept;
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weight(order[i]);
  if (row.top_p < 1) {
    double sum = 0;
    size_t needed = 0;
    while (needed < kept && (needed == 0 || sum < row.top_p * total)) sum += weight(order[needed++]);
    kept = needed;
    total = sum;
  }
  std::vector<int32_t> tokens(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
  std::sort(tokens.begin(), tokens.end());
  double sum = 0;
  int32_t last = tokens.front();
  for (const int32_t token : tokens) {
    if (weight(token) > 0) last = token;
    sum += weight(token);
    if (sum > row.uniform * total) return token;
  }
  return last;
}

inline float edited(float logit, LogitAdjustment edit, const SampleArgs& row) {
  if ((edit.marks & LogitAdjustment::kEnds) != 0 && row.masks_ends != 0) return -INFINITY;
  logit += edit.bias;
  if ((edit.marks & LogitAdjustment::kInPrompt) == 0 && edit.output == 0) return logit;
  logit = logit < 0 ? logit * row.repetition : logit / row.repetition;
  if (edit.output == 0) return logit;
  logit -= row.frequency * static_cast<float>(edit.output);
  return logit - row.presence;
}

inline std::vector<float> edited_row(std::span<const float> logits, const SampleArgs& row,
                                     std::span<const LogitAdjustment> edits, int32_t previous) {
  std::vector<float> values(logits.begin(), logits.end());
  bool counted = row.follows == 0;
  for (LogitAdjustment edit :
       edits.subspan(static_cast<size_t>(row.first_edit), static_cast<size_t>(row.edits))) {
    if (row.follows != 0 && edit.token == previous) {
      ++edit.output;
      counted = true;
    }
    float& value = values[static_cast<size_t>(edit.token)];
    value = edited(value, edit, row);
  }
  if (!counted) {
    float& value = values[static_cast<size_t>(previous)];
    value = edited(value, {.token = previous, .output = 1}, row);
  }
  return values;
}

// What a step may change of its rows' logits.
struct RowChanges {
  std::span<const LogitAdjustment> edits = {};
  std::span<const uint32_t> masks = {};
};

inline std::vector<float> changed_row(std::span<const float> logits, const SampleArgs& row,
                                      const RowChanges& changes, int32_t previous) {
  std::vector<float> values(logits.begin(), logits.end());
  if (row.mask >= 0) {
    const auto words = static_cast<size_t>(mask_words(static_cast<int64_t>(logits.size())));
    const std::span<const uint32_t> mask =
        changes.masks.subspan(static_cast<size_t>(row.mask) * words, words);
    for (size_t i = 0; i < values.size(); ++i)
      if ((mask[i / 32] >> (i % 32) & 1) == 0) values[i] = -INFINITY;
  }
  return edited_row(values, row, changes.edits, previous);
}

// `changes`: the step's; `previous`: what the row's slot holds.
inline SampledToken sample_token(std::span<const float> logits, const SampleArgs& row,
                                 const RowChanges& changes = {}, int32_t previous = 0) {
  SampledToken out;
  const bool finite = std::none_of(logits.begin(), logits.end(), [](float v) { return !(v < INFINITY); });
  if (!finite) {
    out.status = SampledToken::NotFinite;
    return out;
  }
  const std::vector<int32_t> order = ranked(logits);
  if (std::isinf(logits[static_cast<size_t>(order[0])])) {
    out.status = SampledToken::Nothing;
    return out;
  }
  if (row.edits > 0 || row.follows != 0 || row.mask >= 0) {
    const std::vector<float> values = changed_row(logits, row, changes, previous);
    const std::vector<int32_t> by_value = ranked(values);
    if (std::isinf(values[static_cast<size_t>(by_value[0])])) {
      out.status = SampledToken::Excluded;
      return out;
    }
    out.token = row.inverse_temperature > 0 ? choose(values, by_value, row) : by_value[0];
  } else {
    out.token = row.inverse_temperature > 0 ? choose(logits, order, row) : order[0];
  }
  if (row.logprobs >= 0) report(logits, order, row.logprobs, out);
  return out;
}

}  // namespace sluice::kernels::oracle
