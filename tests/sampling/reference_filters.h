// The filters by definition: double precision, full sorts. What src/sampling/filters.h does fast.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "request/sampling_params.h"

namespace sluice::sampling {

class ReferenceFilter {
 public:
  // The probability of every token of the row.
  static std::vector<double> probabilities(std::span<const float> logits, const request::Sampling& sampling) {
    const float maximum = *std::max_element(logits.begin(), logits.end());
    std::vector<double> weights;
    for (float logit : logits) weights.push_back(std::exp((double{logit} - maximum) / sampling.temperature));
    normalize(weights);
    const double top = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) weight = weight < sampling.min_p * top ? 0 : weight;
    normalize(weights);
    if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < weights.size()) {
      std::vector<double> sorted = weights;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const double last = sorted[static_cast<size_t>(sampling.top_k) - 1];
      for (double& weight : weights) weight = weight < last ? 0 : weight;
      normalize(weights);
    }
    if (sampling.top_p < 1) keep_mass(weights, weights, sampling.top_p, false);
    if (sampling.typical_p < 1) keep_mass(weights, typicality(weights), sampling.typical_p, true);
    return weights;
  }

 private:
  static void normalize(std::vector<double>& weights) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= total;
  }

  static std::vector<double> typicality(const std::vector<double>& weights) {
    double entropy = 0;
    for (double weight : weights) entropy -= weight > 0 ? weight * std::log(weight) : 0;
    std::vector<double> keys;
    for (double weight : weights) keys.push_back(-std::abs(-std::log(weight) - entropy));
    return keys;
  }

  // Best keys first, the lower token first among equals, until the mass is reached; then perhaps all equal to
  // the last.
  static void keep_mass(std::vector<double>& weights, const std::vector<double>& keys, double mass,
                        bool with_equals) {
    std::vector<size_t> order(weights.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] > keys[b]; });
    size_t kept = 0;
    for (double sum = 0; kept < order.size() && sum < mass; ++kept) sum += weights[order[kept]];
    kept = std::max<size_t>(kept, 1);
    while (with_equals && kept < order.size() && keys[order[kept]] == keys[order[kept - 1]]) ++kept;
    for (size_t i = kept; i < order.size(); ++i) weights[order[i]] = 0;
    normalize(weights);
  }
};

}  // namespace sluice::sampling
