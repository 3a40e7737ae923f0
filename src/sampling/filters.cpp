#include "sampling/filters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sampling/mass_cut.h"
#include "sampling/row_math.h"

namespace sluice::sampling {
namespace {

// The tokens still in the game: the first `count` entries of the workspace, tokens ascending.
struct Survivors {
  Workspace& space;
  size_t count = 0;
  double total = 0;

  std::span<float> values() const { return std::span(space.values).first(count); }
  std::span<float> weights() const { return std::span(space.weights).first(count); }
};

// Takes the entries of a row from `floor` up, and their weights.
void collect(Survivors& survivors, std::span<const float> logits, float floor, ExpScale scale) {
  Workspace& space = survivors.space;
  survivors.count = collect_from(logits, floor, space.tokens.data(), space.values.data());
  std::copy_n(space.values.begin(), survivors.count, space.weights.begin());
  survivors.total = exp_in_place(survivors.weights(), scale);
}

// Keeps the entries inside the cut; `keys` are what the cut was made on.
void keep(Survivors& survivors, std::span<const float> keys, MassCut cut) {
  Workspace& space = survivors.space;
  size_t kept = 0, ties = 0;
  double total = 0;
  for (size_t i = 0; i < survivors.count; ++i) {
    const bool inside = keys[i] > cut.key || (keys[i] == cut.key && ties++ < cut.ties);
    if (!inside) continue;
    space.tokens[kept] = space.tokens[i];
    space.values[kept] = space.values[i];
    space.weights[kept] = space.weights[i];
    total += space.weights[kept];
    ++kept;
  }
  survivors.count = kept;
  survivors.total = total;
}

// Both min-p and top-k keep what is at least some logit, so together they are the higher of the two.
float floor_of(std::span<const float> logits, float maximum, const request::Sampling& sampling,
               Workspace& space) {
  float floor = kLowest;
  if (sampling.min_p > 0) {
    const double lowest_kept = maximum + sampling.temperature * std::log(sampling.min_p);
    floor = static_cast<float>(std::clamp<double>(lowest_kept, kLowest, maximum));
  }
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < logits.size()) {
    floor = std::max(floor, nth_largest(logits, static_cast<size_t>(sampling.top_k), space.buffer));
  }
  return floor;
}

// For top-p alone: the mass of the row is summed without keeping it, and only the logits near the top are
// taken, at first those of a probability of at least e^-8 of the largest.
void collect_nucleus(Survivors& survivors, std::span<const float> logits, double top_p, ExpScale scale) {
  const double total = exp_sum(logits, scale);
  for (float reach : {8.0F, 16.0F, 32.0F}) {
    collect(survivors, logits, scale.offset - reach / scale.scale, scale);
    if (survivors.total >= top_p * total) break;
  }
  if (survivors.total < top_p * total) collect(survivors, logits, kLowest, scale);
  survivors.total = total;
}

// transformers' TypicalLogitsWarper: the tokens whose surprise is nearest to the entropy; all of equal
// distance.
void keep_typical(Survivors& survivors, double typical_p, ExpScale scale) {
  const double log_total = std::log(survivors.total);
  const auto log_probability = [&](float logit) {
    return static_cast<double>((logit - scale.offset) * scale.scale) - log_total;
  };
  double entropy = 0;
  const std::span<const float> values = survivors.values(), weights = survivors.weights();
  for (size_t i = 0; i < values.size(); ++i) {
    if (weights[i] > 0) entropy -= weights[i] / survivors.total * log_probability(values[i]);
  }
  std::vector<float>& keys = survivors.space.keys;
  keys.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    keys[i] = static_cast<float>(-std::abs(-log_probability(values[i]) - entropy));
  }
  MassCut cut = cut_by_mass(keys, weights, typical_p * survivors.total);
  cut.ties = survivors.count;
  keep(survivors, keys, cut);
}

// In four chains, so that additions do not wait for each other.
double block_sum(std::span<const float> block) {
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= block.size(); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) sums[lane] += block[i + lane];
  }
  for (; i < block.size(); ++i) sums[0] += block[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

Distribution greedy(std::span<const float> logits, float maximum, Workspace& space) {
  const auto best = std::find(logits.begin(), logits.end(), maximum);
  SLUICE_CHECK(best != logits.end());
  space.tokens[0] = static_cast<Token>(best - logits.begin());
  space.weights[0] = 1;
  return {
      .tokens = std::span(space.tokens).first(1), .weights = std::span(space.weights).first(1), .total = 1};
}

}  // namespace

Distribution filter(std::span<const float> logits, float maximum, const request::Sampling& sampling,
                    Workspace& workspace) {
  if (workspace.tokens.size() < logits.size()) {
    workspace.tokens.resize(logits.size());
    workspace.values.resize(logits.size());
    workspace.weights.resize(logits.size());
  }
  if (sampling.temperature < kGreedyTemperature) return greedy(logits, maximum, workspace);
  const ExpScale scale{.offset = maximum, .scale = static_cast<float>(1 / sampling.temperature)};
  const float floor = floor_of(logits, maximum, sampling, workspace);
  Survivors survivors{.space = workspace};
  if (sampling.top_p < 1 && floor == kLowest) {
    collect_nucleus(survivors, logits, sampling.top_p, scale);
  } else {
    collect(survivors, logits, floor, scale);
  }
  if (sampling.top_p < 1) {
    const MassCut cut =
        cut_by_mass(survivors.values(), survivors.weights(), sampling.top_p * survivors.total);
    keep(survivors, survivors.values(), cut);
  }
  if (sampling.typical_p < 1) keep_typical(survivors, sampling.typical_p, scale);
  return {.tokens = std::span(workspace.tokens).first(survivors.count),
          .weights = survivors.weights(),
          .total = survivors.total};
}

Token pick(const Distribution& distribution, double uniform) {
  constexpr size_t kBlock = 64;
  const std::span<const float> weights = distribution.weights;
  const double target = uniform * distribution.total;
  double sum = 0;
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    const std::span<const float> block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
    const double after = sum + block_sum(block);
    for (size_t i = 0; after > target && i < block.size(); ++i) {
      sum += block[i];
      if (sum > target && block[i] > 0) return distribution.tokens[begin + i];
    }
    sum = after;
  }
  // Rounding left the sum short of the target: the last token of any weight.
  size_t last = weights.size() - 1;
  while (last > 0 && weights[last] == 0) --last;
  return distribution.tokens[last];
}

}  // namespace sluice::sampling
