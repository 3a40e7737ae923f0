// Mixtures: tokens are gathered by expert, so that each expert's weights are read once per step.
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

// The (token, slot) pairs of each expert of the bank, as token * slots + slot.
std::vector<std::vector<int64_t>> pairs_by_expert(const TensorView& ids, const ExpertBank& bank) {
  std::vector<std::vector<int64_t>> pairs(bank.down.size());
  for (int64_t token = 0; token < ids.dim(0); ++token) {
    for (int64_t slot = 0; slot < ids.dim(1); ++slot) {
      const int32_t expert = ids.at<int32_t>(token)[slot];
      if (bank.has(expert))
        pairs[static_cast<size_t>(expert - bank.first)].push_back(token * ids.dim(1) + slot);
    }
  }
  return pairs;
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

void CpuBackend::moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                         const ExpertBank& bank) {
  const int64_t slots = ids.dim(1);
  const int64_t dim = x.dim(1);
  HostTensor results = HostTensor::make(DType::F32, {x.dim(0) * slots, dim});
  const auto pairs = pairs_by_expert(ids, bank);
  for (size_t expert = 0; expert < pairs.size(); ++expert) {
    const auto count = static_cast<int64_t>(pairs[expert].size());
    if (count == 0) continue;
    HostTensor input = HostTensor::make(DType::F32, {count, dim});
    HostTensor hidden = HostTensor::make(DType::F32, {count, bank.gate_up[expert].rows});
    HostTensor active = HostTensor::make(DType::F32, {count, bank.down[expert].cols});
    HostTensor output = HostTensor::make(DType::F32, {count, dim});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t pair = pairs[expert][static_cast<size_t>(i)];
      std::copy_n(x.at<float>(pair / slots), dim, input.view.at<float>(i));
      if (bank.weigh_inputs)
        kernels_.multiply(input.view.at<float>(i), weights.at<float>(pair / slots)[pair % slots], dim);
    }
    matmul(hidden.view, input.view, bank.gate_up[expert]);
    if (bank.gated && bank.limit > 0.0f) {
      const TensorView gate = hidden.view.columns(0, active.view.dim(1));
      activate(gate, gate, bank.activation);
      clamp(hidden.view, bank.limit);
      gated(active.view, hidden.view, Activation::Identity);
    } else if (bank.gated) {
      gated(active.view, hidden.view, bank.activation);
    } else {
      activate(active.view, hidden.view, bank.activation);
    }
    matmul(output.view, active.view, bank.down[expert]);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(output.view.at<float>(i), dim,
                  results.view.at<float>(pairs[expert][static_cast<size_t>(i)]));
    }
  }
  for_rows(x.dim(0), slots * dim, [&](int64_t token) {
    float* to = out.at<float>(token);
    std::fill(to, to + dim, 0.0f);
    for (int64_t slot = 0; slot < slots; ++slot) {
      if (!bank.has(ids.at<int32_t>(token)[slot])) continue;
      const float weight = bank.weigh_inputs ? 1.0f : weights.at<float>(token)[slot];
      kernels_.add_scaled(to, to, results.view.at<float>(token * slots + slot), weight, dim);
    }
  });
}

}  // namespace sluice::kernels::cpu
