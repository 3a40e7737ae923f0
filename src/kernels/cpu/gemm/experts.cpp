// Which experts a token uses.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

void softmax(std::span<float> values) {
  const float largest = *std::max_element(values.begin(), values.end());
  float total = 0;
  for (float& value : values) total += value = std::exp(value - largest);
  for (float& value : values) value /= total;
}

// Indices of the `count` largest values, best first, ties to the lower index.
std::vector<int> best_of(std::span<const float> values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int a, int b) {
    const float first = values[static_cast<size_t>(a)];
    const float second = values[static_cast<size_t>(b)];
    return first != second ? first > second : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), better);
  order.resize(static_cast<size_t>(count));
  return order;
}

void keep_best_groups(std::span<float> choice, const Routing& routing) {
  if (routing.groups_used >= routing.groups) return;
  const int size = routing.experts / routing.groups;
  std::vector<float> ranks;
  for (int group = 0; group < routing.groups; ++group) {
    const auto members = choice.subspan(static_cast<size_t>(group * size), static_cast<size_t>(size));
    const std::vector<int> best = best_of(members, std::min(size, routing.group_best));
    float rank = 0;
    for (int member : best) rank += members[static_cast<size_t>(member)];
    ranks.push_back(rank);
  }
  const std::vector<int> kept = best_of(ranks, routing.groups_used);
  for (int expert = 0; expert < routing.experts; ++expert) {
    if (std::find(kept.begin(), kept.end(), expert / size) == kept.end()) {
      choice[static_cast<size_t>(expert)] = -std::numeric_limits<float>::infinity();
    }
  }
}

// One expert after another: the best of those left, weighed against the others left that are near it.
void mix_sparsely(int32_t* ids, float* weights, std::vector<float> logits, const Routing& routing) {
  for (int slot = 0; slot < routing.used; ++slot) {
    const auto chosen = std::max_element(logits.begin(), logits.end());
    const float best = *chosen;
    float total = 0;
    for (float logit : logits)
      if (best - logit <= routing.margin * std::max(std::abs(logit), best)) total += std::exp(logit - best);
    ids[slot] = static_cast<int32_t>(chosen - logits.begin());
    weights[slot] = routing.scale / total;
    *chosen = -std::numeric_limits<float>::infinity();
  }
}

void route_one(int32_t* ids, float* weights, const float* logits, const Routing& routing) {
  std::vector<float> scores(logits, logits + routing.experts);
  if (routing.score == Routing::Score::SparseMixer)
    return mix_sparsely(ids, weights, std::move(scores), routing);
  if (routing.score == Routing::Score::Softmax) softmax(scores);
  if (routing.score == Routing::Score::Sigmoid) {
    for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
  }
  std::vector<float> choice = scores;
  for (size_t expert = 0; expert < choice.size() && !routing.choice_bias.empty(); ++expert) {
    choice[expert] += routing.choice_bias.at<float>()[expert];
  }
  keep_best_groups(choice, routing);
  const std::vector<int> chosen = best_of(choice, routing.used);
  std::vector<float> shares;
  for (int expert : chosen) shares.push_back(scores[static_cast<size_t>(expert)]);
  if (routing.score == Routing::Score::SoftmaxOfTop) softmax(shares);
  const float total = routing.normalize ? std::accumulate(shares.begin(), shares.end(), 0.0f) : 1.0f;
  for (size_t slot = 0; slot < chosen.size(); ++slot) {
    ids[slot] = chosen[slot];
    weights[slot] = shares[slot] / total * routing.scale;
    if (!routing.weight_scale.empty()) weights[slot] *= routing.weight_scale.at<float>()[chosen[slot]];
  }
}

}  // namespace

void CpuBackend::route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) {
  SLUICE_CHECK_EQ(logits.dim(1), int64_t{routing.logits()});
  for_rows(logits.dim(0), 8 * logits.dim(1), [&](int64_t i) {
    route_one(ids.at<int32_t>(i), weights.at<float>(i), logits.at<float>(i), routing);
    float always = routing.always_weight;
    if (routing.always_gated) always /= 1.0f + std::exp(-logits.at<float>(i)[routing.experts]);
    for (int slot = routing.used; slot < routing.slots(); ++slot) {
      ids.at<int32_t>(i)[slot] = routing.experts + slot - routing.used;
      weights.at<float>(i)[slot] = always;
    }
  });
}

}  // namespace sluice::kernels::cpu
