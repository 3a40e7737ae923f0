#include "models/group/stage_cut.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"

namespace sluice::models {

namespace {

struct CostOf {
  int64_t dim;

  int64_t operator()(const Attention& m) const {
    const int64_t q = int64_t{m.heads} * m.head_dim, out = int64_t{m.heads} * m.values();
    const int64_t kv = m.kv_from >= 0 ? 0 : int64_t{m.kv_heads} * (m.head_dim + m.values());
    const int64_t indexer = int64_t{m.indexer.heads + (m.indexer.heads > 0 ? 1 : 0)} * m.indexer.dim;
    return dim * (q + kv + out + (m.gated && !m.gate_per_head ? out : 0) + indexer);
  }
  int64_t operator()(const LatentAttention& m) const {
    const int64_t query = int64_t{m.heads} * (m.nope_dim + m.rope_dim);
    const int64_t source = m.q_latent > 0 ? m.q_latent : dim;
    return (m.q_latent > 0 ? dim * m.q_latent : 0) + source * query + dim * (m.latent + m.rope_dim) +
           int64_t{m.heads} * m.latent * (m.nope_dim + m.value_dim) + int64_t{m.heads} * m.value_dim * dim +
           (source * m.indexer.heads + (m.indexer.heads > 0 ? dim : 0)) * m.indexer.dim;
  }
  int64_t operator()(const ShortConv&) const { return 4 * dim * dim; }
  int64_t operator()(const GatedDelta& m) const { return dim * (m.channels() + 2 * m.values()); }
  int64_t operator()(const StateSpace& m) const { return dim * (2 * m.inner() + m.channels()); }
  int64_t operator()(const ChannelScan& m) const {
    return int64_t{m.inner} * (3 * dim + 2 * m.step_rank + 2 * m.state_dim);
  }
  int64_t operator()(const AttentionBesideStateSpace& m) const {
    return (*this)(m.attention) + (*this)(m.scan);
  }
  // The block reads the embedding beside the layer's input and is projected back.
  int64_t operator()(const StateSpaceAfterBlock& m) const {
    const CostOf wide{2 * dim};
    return wide(m.attention) + (*this)(m.ffn) + dim * dim + (*this)(m.scan);
  }
  int64_t operator()(const NoMixer&) const { return 0; }

  int64_t operator()(const DenseFfn& f) const { return dim * f.inner * (f.gated ? 3 : 2); }
  int64_t operator()(const MoeFfn& f) const {
    const int64_t matrices = f.gated ? 3 : 2, experts = f.routing.experts;
    const int64_t width = f.latent > 0 ? f.latent : dim;  // of what the routed ones read
    return dim * (experts + 2 * f.latent + matrices * f.shared_inner) + width * matrices * experts * f.inner;
  }
  int64_t operator()(const DenseBesideExperts& f) const { return (*this)(f.dense) + (*this)(f.experts); }
  int64_t operator()(const XieluFfn& f) const { return 2 * dim * f.inner; }
  int64_t operator()(const NoFfn&) const { return 0; }
};

// What decides whether consecutive layers can be a stage.
class StageRules {
 public:
  explicit StageRules(const ModelSpec& spec) : spec_(spec), states_(layer_states(spec)) {
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      if (const PagedKv* kv = kv_of(states_, i)) layers_of_kind_[kv->window].push_back(i);
      if (recurrent_of(states_[i]) != nullptr) layers_of_kind_[-1].push_back(i);
    }
  }

  bool allow(size_t begin, size_t end) const {
    const auto* first = std::get_if<LatentAttention>(&spec_.layers[begin].mixer);
    if (first != nullptr && first->indexer.chosen > 0 && first->indexer.heads == 0) return false;
    for (size_t i = begin; i < end; ++i) {
      const auto* attention = std::get_if<Attention>(&spec_.layers[i].mixer);
      if (attention != nullptr && attention->kv_from >= 0 && std::cmp_less(attention->kv_from, begin))
        return false;
    }
    return std::all_of(layers_of_kind_.begin(), layers_of_kind_.end(), [&](const auto& kind) {
      const auto found = std::lower_bound(kind.second.begin(), kind.second.end(), begin);
      return found != kind.second.end() && *found < end;
    });
  }

 private:
  const ModelSpec& spec_;
  std::vector<LayerState> states_;
  std::map<int, std::vector<size_t>> layers_of_kind_;  // by window; -1: a state
};

std::vector<double> weights_of(const ModelSpec& spec) {
  std::vector<double> weights;
  for (const LayerSpec& layer : spec.layers) weights.push_back(static_cast<double>(layer_cost(spec, layer)));
  return weights;
}

// Of the first layers, in some number of stages.
struct Best {
  double costliest = 0, squares = 0;
  size_t begin = 0;  // of the last of these stages
  friend bool operator<(const Best& a, const Best& b) {
    return a.costliest != b.costliest ? a.costliest < b.costliest : a.squares < b.squares;
  }
};

class StageCutter {
 public:
  StageCutter(const ModelSpec& spec, int stages, const StageCosts& costs,
              int64_t most_weights = std::numeric_limits<int64_t>::max())
      : layers_(spec.layers.size()), stages_(static_cast<size_t>(stages)), ends_(costs) {
    costs_.push_back(0);
    for (const double cost : costs.layers) costs_.push_back(costs_.back() + cost);
    const std::vector<double> weights = weights_of(spec);
    const StageRules rules(spec);
    for (size_t begin = 0; begin < layers_; ++begin) {
      double sum = 0;
      for (size_t end = 0; end <= layers_; ++end) {
        if (end > begin) sum += weights[end - 1];
        allowed_.push_back(begin < end && sum <= static_cast<double>(most_weights) &&
                           rules.allow(begin, end));
      }
    }
  }

  // Empty: there is no such cut.
  std::vector<dist::Range> cut(bool by_rules) const {
    // best[s][n]: of the first n layers in s + 1 stages.
    std::vector<std::vector<std::optional<Best>>> best(stages_,
                                                       std::vector<std::optional<Best>>(layers_ + 1));
    for (size_t stage = 0; stage < stages_; ++stage)
      for (size_t end = stage + 1; end <= layers_; ++end)
        for (size_t begin = stage; begin < end; ++begin) {
          if (stage == 0 && begin > 0) break;
          if (stage > 0 && !best[stage - 1][begin]) continue;
          if (by_rules && !allowed_[begin * (layers_ + 1) + end]) continue;
          const Best found = joined(stage > 0 ? *best[stage - 1][begin] : Best(), stage, begin, end);
          if (!best[stage][end] || found < *best[stage][end]) best[stage][end] = found;
        }
    if (!best[stages_ - 1][layers_]) return {};
    std::vector<dist::Range> ranges(stages_);
    size_t end = layers_;
    for (size_t stage = stages_; stage-- > 0;) {
      const size_t begin = best[stage][end]->begin;
      ranges[stage] = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
      end = begin;
    }
    return ranges;
  }

 private:
  Best joined(const Best& before, size_t stage, size_t begin, size_t end) const {
    double cost = costs_[end] - costs_[begin];
    if (stage == 0) cost += ends_.first;
    if (stage + 1 == stages_) cost += ends_.last;
    return {std::max(before.costliest, cost), before.squares + cost * cost, begin};
  }

  size_t layers_, stages_;
  StageCosts ends_;            // the layers' are in costs_
  std::vector<double> costs_;  // of the layers before
  std::vector<bool> allowed_;  // [begin, end]
};

}  // namespace

int64_t layer_cost(const ModelSpec& spec, const LayerSpec& layer) {
  const CostOf cost{spec.dim};
  return std::visit(cost, layer.mixer) + std::visit(cost, layer.ffn);
}

std::vector<dist::Range> cut_stages(const ModelSpec& spec, int stages, const StageEnds& ends) {
  SLUICE_CHECK(stages > 0 && std::cmp_greater_equal(spec.layers.size(), stages));
  const StageCutter cutter(
      spec, stages, {weights_of(spec), static_cast<double>(ends.first), static_cast<double>(ends.last)});
  std::vector<dist::Range> ranges = cutter.cut(true);
  return ranges.empty() ? cutter.cut(false) : ranges;
}

double slowest_stage(const StageCosts& costs, std::span<const dist::Range> stages) {
  double slowest = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto begin = costs.layers.begin() + stages[stage].begin;
    double cost = std::accumulate(begin, begin + stages[stage].size(), 0.0);
    if (stage == 0) cost += costs.first;
    if (stage + 1 == stages.size()) cost += costs.last;
    slowest = std::max(slowest, cost);
  }
  return slowest;
}

std::vector<dist::Range> cut_stages_by(const ModelSpec& spec, int stages, const StageCosts& costs,
                                       int64_t most_weights) {
  SLUICE_CHECK_EQ(costs.layers.size(), spec.layers.size());
  SLUICE_CHECK(stages > 0 && std::cmp_greater_equal(spec.layers.size(), stages));
  return StageCutter(spec, stages, costs, most_weights).cut(true);
}

}  // namespace sluice::models
