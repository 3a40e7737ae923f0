#include "sampling/contrastive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "sampling/row_math.h"

namespace sluice::sampling {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= a.size(); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) sums[lane] += double{a[i + lane]} * b[i + lane];
  }
  for (; i < a.size(); ++i) sums[0] += double{a[i]} * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double norm(std::span<const float> vector) {
  return std::sqrt(dot(vector, vector));
}

// Largest cosine of a candidate's hidden state to those of the context; NaN where one is not a number.
double degeneration_penalty(std::span<const float> hidden, std::span<const float> context,
                            std::span<const double> context_norms) {
  const double length = norm(hidden);
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t j = 0; j < context_norms.size(); ++j) {
    const double product = length * context_norms[j];
    const double cosine =
        product == 0 ? 0 : dot(hidden, context.subspan(j * hidden.size(), hidden.size())) / product;
    if (std::isnan(cosine)) return cosine;
    largest = std::max(largest, cosine);
  }
  return largest;
}

}  // namespace

Result<size_t> select_contrastive(const ContrastiveCandidates& candidates, double alpha) {
  const size_t count = candidates.probabilities.size();
  SLUICE_CHECK_GT(count, size_t{0});
  const size_t dim = candidates.hidden.size() / count;
  SLUICE_CHECK_GT(dim, size_t{0});
  SLUICE_CHECK_EQ(candidates.hidden.size(), count * dim);
  SLUICE_CHECK_EQ(candidates.context.size() % dim, size_t{0});
  SLUICE_CHECK_GT(candidates.context.size(), size_t{0});
  std::vector<double> norms(candidates.context.size() / dim);
  for (size_t j = 0; j < norms.size(); ++j) norms[j] = norm(candidates.context.subspan(j * dim, dim));
  size_t best = 0;
  double best_score = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < count; ++i) {
    const double penalty =
        degeneration_penalty(candidates.hidden.subspan(i * dim, dim), candidates.context, norms);
    const double score = (1 - alpha) * candidates.probabilities[i] - alpha * penalty;
    if (!std::isfinite(score)) {
      return Error{ErrorCode::Numerical,
                   fmt::format("the contrastive score of candidate {} is {}", i, score)};
    }
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

Status combine_contrastive(std::span<float> expert, std::span<const float> amateur,
                           const request::ContrastiveDecoding& method) {
  if (expert.size() != amateur.size()) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the amateur model has {} logits and the expert {}; contrastive decoding needs one "
                    "vocabulary",
                    amateur.size(), expert.size())};
  }
  const Result<float> maximum = row_maximum(expert);
  if (!maximum.ok()) return maximum.error();
  const Result<float> amateur_maximum = row_maximum(amateur);
  if (!amateur_maximum.ok()) return amateur_maximum.error();
  if (std::isinf(*amateur_maximum)) {
    return Error{ErrorCode::Numerical, "the amateur model's logits of all tokens are -inf"};
  }
  const float floor = static_cast<float>(*maximum + std::log(method.alpha));
  const float beta = static_cast<float>(method.beta);
  float least = *amateur_maximum;
  for (float logit : amateur) {
    if (logit > kMasked) least = std::min(least, logit);
  }
  for (size_t i = 0; i < expert.size(); ++i) {
    if (!(expert[i] >= floor) || expert[i] == kMasked) {
      expert[i] = kMasked;
    } else {
      const float weaker = std::max(amateur[i], least);
      expert[i] = beta == 0 ? expert[i] : (1 + beta) * expert[i] - beta * weaker;
    }
  }
  return {};
}

}  // namespace sluice::sampling
