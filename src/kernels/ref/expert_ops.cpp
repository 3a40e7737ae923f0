// Routing and mixtures of the reference.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/host.h"
#include "kernels/ref/ref_backend.h"

namespace sluice::kernels {

namespace {

void softmax(std::span<double> values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double total = 0;
  for (double& value : values) total += value = std::exp(value - largest);
  for (double& value : values) value /= total;
}

std::vector<double> scores_of(const float* logits, const Routing& routing) {
  std::vector<double> scores(logits, logits + routing.experts);
  if (routing.score == Routing::Score::Softmax) softmax(scores);
  if (routing.score == Routing::Score::Sigmoid) {
    for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
  }
  return scores;
}

// Indices of the largest values, best first, ties to the lower index.
std::vector<int> best_of(const std::vector<double>& values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

// Sets the choice of experts outside the best groups to minus infinity.
void keep_best_groups(std::vector<double>& choice, const Routing& routing) {
  if (routing.groups_used >= routing.groups) return;
  const int size = routing.experts / routing.groups;
  std::vector<double> ranks;
  for (int group = 0; group < routing.groups; ++group) {
    std::vector<double> members(choice.begin() + group * size, choice.begin() + (group + 1) * size);
    std::sort(members.begin(), members.end(), std::greater<>());
    ranks.push_back(
        std::accumulate(members.begin(), members.begin() + std::min(routing.group_best, size), 0.0));
  }
  const std::vector<int> kept = best_of(ranks, routing.groups_used);
  for (int expert = 0; expert < routing.experts; ++expert) {
    if (std::find(kept.begin(), kept.end(), expert / size) == kept.end()) {
      choice[static_cast<size_t>(expert)] = -std::numeric_limits<double>::infinity();
    }
  }
}

// One expert after another: the best of those left, weighed against the others left that are near it.
void mix_sparsely(std::span<int32_t> ids, std::span<float> weights, std::vector<double> logits,
                  const Routing& routing) {
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    const int chosen = best_of(logits, 1).front();
    const double best = logits[static_cast<size_t>(chosen)];
    double total = 0;
    for (double logit : logits)
      if (best - logit <= routing.margin * std::max(std::abs(logit), best)) total += std::exp(logit - best);
    ids[slot] = chosen;
    weights[slot] = static_cast<float>(routing.scale / total);
    logits[static_cast<size_t>(chosen)] = -std::numeric_limits<double>::infinity();
  }
}

void add_always(int32_t* ids, float* weights, const float* logits, const Routing& routing) {
  const double gate = routing.always_gated ? 1.0 / (1.0 + std::exp(-double{logits[routing.experts]})) : 1.0;
  for (int i = 0; i < routing.always; ++i) {
    ids[routing.used + i] = routing.experts + i;
    weights[routing.used + i] = static_cast<float>(routing.always_weight * gate);
  }
}

}  // namespace

void RefBackend::route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) {
  for (int64_t i = 0; i < logits.dim(0); ++i) {
    const std::vector<double> scores = scores_of(logits.at<float>(i), routing);
    if (routing.score == Routing::Score::SparseMixer) {
      const auto used = static_cast<size_t>(routing.used);
      mix_sparsely({ids.at<int32_t>(i), used}, {weights.at<float>(i), used}, scores, routing);
      add_always(ids.at<int32_t>(i), weights.at<float>(i), logits.at<float>(i), routing);
      continue;
    }
    std::vector<double> choice = scores;
    for (int expert = 0; expert < routing.experts && !routing.choice_bias.empty(); ++expert) {
      choice[static_cast<size_t>(expert)] += routing.choice_bias.at<float>()[expert];
    }
    keep_best_groups(choice, routing);
    const std::vector<int> chosen = best_of(choice, routing.used);
    std::vector<double> shares;
    for (int expert : chosen) shares.push_back(scores[static_cast<size_t>(expert)]);
    if (routing.score == Routing::Score::SoftmaxOfTop) softmax(shares);
    const double total = routing.normalize ? std::accumulate(shares.begin(), shares.end(), 0.0) : 1.0;
    for (size_t slot = 0; slot < chosen.size(); ++slot) {
      ids.at<int32_t>(i)[slot] = chosen[slot];
      const double factor =
          routing.weight_scale.empty() ? 1.0 : double{routing.weight_scale.at<float>()[chosen[slot]]};
      weights.at<float>(i)[slot] = static_cast<float>(shares[slot] / total * routing.scale * factor);
    }
    add_always(ids.at<int32_t>(i), weights.at<float>(i), logits.at<float>(i), routing);
  }
}

void RefBackend::moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                         const ExpertBank& bank) {
  const int64_t dim = x.dim(1);
  for (int64_t i = 0; i < x.dim(0); ++i) {
    std::vector<double> sums(static_cast<size_t>(dim));
    for (int64_t slot = 0; slot < ids.dim(1); ++slot) {
      if (!bank.has(ids.at<int32_t>(i)[slot])) continue;
      const auto expert = static_cast<size_t>(ids.at<int32_t>(i)[slot] - bank.first);
      const int64_t inner = bank.down[expert].cols;
      HostTensor hidden = HostTensor::make(DType::F32, {1, bank.gate_up[expert].rows});
      HostTensor active = HostTensor::make(DType::F32, {1, inner});
      HostTensor result = HostTensor::make(DType::F32, {1, dim});
      HostTensor input = HostTensor::make(DType::F32, {1, dim});
      copy(input.view, x.rows(i, i + 1));
      const float weight = weights.at<float>(i)[slot];
      if (bank.weigh_inputs) scale(input.view, weight);
      matmul(hidden.view, input.view, bank.gate_up[expert]);
      if (bank.gated && bank.limit > 0.0f) {
        const TensorView gate = hidden.view.columns(0, inner);
        activate(gate, gate, bank.activation);
        clamp(hidden.view, bank.limit);
        gated(active.view, hidden.view, Activation::Identity);
      } else if (bank.gated) {
        gated(active.view, hidden.view, bank.activation);
      } else {
        activate(active.view, hidden.view, bank.activation);
      }
      matmul(result.view, active.view, bank.down[expert]);
      const double share = bank.weigh_inputs ? 1.0 : static_cast<double>(weight);
      for (int64_t k = 0; k < dim; ++k) sums[static_cast<size_t>(k)] += share * result.view.at<float>()[k];
    }
    std::transform(sums.begin(), sums.end(), out.at<float>(i),
                   [](double sum) { return static_cast<float>(sum); });
  }
}

}  // namespace sluice::kernels
