#include "runtime/parallel/stage_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "models/group/stage_cut.h"
#include "runtime/parallel/order.h"
#include "runtime/scorer.h"

namespace sluice::runtime {

namespace {

// Steps as those of answers: few tokens, some way into a sequence.
constexpr int kRows = 8, kSteps = 6, kMostContext = 64;
// A cut that is faster by less would change with the noise of the machine.
constexpr double kLeastStageGain = 0.05;
// Of the weights of the costliest stage, by weights: a rank's memory is planned for about its share.
constexpr double kMostWeights = 1.25;

bool can_gain(const models::Model& model) {
  if (!model.group || model.backend->async_device() != nullptr) return false;
  const models::Placement& placement = model.group->placement();
  return !placement.stage.whole() && placement.stage_layers.empty() && model.group->steps_in_flight() > 1;
}

// Of every rank; nothing where the model has too few positions.
Result<std::vector<models::PartTimes>> time_parts(const models::Model& model) {
  const models::ModelSpec& spec = model.files.spec;
  const int context = std::min(kMostContext, spec.context - kRows * kSteps);
  if (context < 1) return std::vector<models::PartTimes>();
  std::vector<Token> tokens(static_cast<size_t>(std::max(context, kRows)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>((i * 7919 + 1) % static_cast<size_t>(spec.vocab));
  Scorer scorer(model, context + kRows * kSteps);
  const auto append = [&](int count) {
    return scorer.append(std::span(tokens).first(static_cast<size_t>(count)));
  };
  if (auto done = append(context); !done) return done.error();
  scorer.runner().time_steps();
  for (int step = 0; step < kSteps; ++step)
    if (auto done = append(kRows); !done) return done.error();
  return scorer.runner().step_times();
}

// Layers of one kind cost as much as the fastest of them, wherever it lies: what else runs beside one rank moves no layers.
void level_kinds(const models::ModelSpec& spec, std::vector<double>& layers) {
  std::map<std::tuple<size_t, size_t, int64_t>, double> least;
  const auto kind = [&](size_t layer) {
    const models::LayerSpec& found = spec.layers[layer];
    return std::tuple(found.mixer.index(), found.ffn.index(), models::layer_cost(spec, found));
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto [place, first] = least.try_emplace(kind(i), layers[i]);
    if (!first) place->second = std::min(place->second, layers[i]);
  }
  for (size_t i = 0; i < layers.size(); ++i) layers[i] = least.at(kind(i));
}

// Of the ranks of a stage the slowest counts.
models::StageCosts costs_of(const models::Model& model, const std::vector<models::PartTimes>& ranks,
                            std::span<const models::Range> stages) {
  models::StageCosts costs;
  costs.layers.resize(model.files.spec.layers.size());
  const size_t each = ranks.size() / stages.size();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const models::Range& own = stages[rank / each];
    if (std::cmp_not_equal(ranks[rank].layers.size(), own.size()))
      throw dist::GroupFailure(fmt::format("rank {} sends times of {} layers, it has {}", rank,
                                           ranks[rank].layers.size(), own.size()));
    for (int64_t i = 0; i < own.size(); ++i) {
      double& cost = costs.layers[static_cast<size_t>(own.begin + i)];
      cost = std::max(cost, ranks[rank].layers[static_cast<size_t>(i)]);
    }
    if (rank < each) costs.first = std::max(costs.first, ranks[rank].logits);
    if (rank + each >= ranks.size()) costs.last = std::max(costs.last, ranks[rank].logits);
  }
  level_kinds(model.files.spec, costs.layers);
  return costs;
}

std::vector<int> counts_of(std::span<const models::Range> stages) {
  std::vector<int> counts;
  for (const models::Range& stage : stages) counts.push_back(static_cast<int>(stage.size()));
  return counts;
}

int64_t most_weights(const models::ModelSpec& spec, std::span<const models::Range> stages) {
  int64_t most = 0;
  for (const models::Range& stage : stages) {
    int64_t sum = 0;
    for (int64_t i = stage.begin; i < stage.end; ++i)
      sum += models::layer_cost(spec, spec.layers[static_cast<size_t>(i)]);
    most = std::max(most, sum);
  }
  return static_cast<int64_t>(static_cast<double>(most) * kMostWeights);
}

Result<std::vector<int>> measure(const models::Model& model) {
  const Result<std::vector<models::PartTimes>> times = time_parts(model);
  if (!times) return times.error();
  if (times->empty()) return std::vector<int>();
  const models::ModelSpec& spec = model.files.spec;
  const std::vector<models::Range> now = model.group->placement().all_layers(spec);
  const models::StageCosts costs = costs_of(model, *times, now);
  const std::vector<models::Range> better =
      models::cut_stages_by(spec, static_cast<int>(now.size()), costs, most_weights(spec, now));
  if (better.empty()) return std::vector<int>();
  const double before = models::slowest_stage(costs, now), after = models::slowest_stage(costs, better);
  log_debug(
      "stages of {} layers: the slowest takes {:.3f} ms of a step of {} tokens, with {} it would {:.3f}",
      fmt::join(counts_of(now), "+"), before * 1e3, kRows, fmt::join(counts_of(better), "+"), after * 1e3);
  if (after > (1 - kLeastStageGain) * before) return std::vector<int>();
  std::vector<int> counts = counts_of(better);
  log_info("stages have {} layers instead of {}: the slowest is {:.0f} % faster in steps of {} tokens",
           fmt::join(counts, "+"), fmt::join(counts_of(now), "+"), (1 - after / before) * 100, kRows);
  OrderWriter order(Order::Cut);
  order.put(counts);
  order.send(*model.group);
  return counts;
}

}  // namespace

Result<std::vector<int>> measure_stages(const models::Model& model) {
  if (!can_gain(model)) return std::vector<int>();
  try {
    return measure(model);
  } catch (const std::exception& problem) {
    model.group->abandon();
    return Error{ErrorCode::Unavailable, problem.what()};
  }
}

}  // namespace sluice::runtime
