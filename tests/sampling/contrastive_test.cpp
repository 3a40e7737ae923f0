// Contrastive search and contrastive decoding against transcriptions of their definitions.
#include "sampling/contrastive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/sampling/cases.h"

namespace sluice::sampling {
namespace {

using ::testing::HasSubstr;

std::vector<float> random_floats(size_t count, std::mt19937& generator) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

double cosine(const float* a, const float* b, size_t dim) {
  double product = 0, a2 = 0, b2 = 0;
  for (size_t i = 0; i < dim; ++i) {
    product += double{a[i]} * b[i];
    a2 += double{a[i]} * a[i];
    b2 += double{b[i]} * b[i];
  }
  return product / std::sqrt(a2) / std::sqrt(b2);
}

TEST(ContrastiveSearch, EqualsItsDefinition) {
  std::mt19937 generator(2);
  for (int round = 0; round < 300; ++round) {
    const size_t count = 1 + generator() % 8, length = 1 + generator() % 20, dim = 1 + generator() % 37;
    const double alpha = static_cast<double>(generator() % 101) / 100;
    const std::vector<float> hidden = random_floats(count * dim, generator);
    const std::vector<float> context = random_floats(length * dim, generator);
    std::vector<float> probabilities = random_floats(count, generator);
    for (float& probability : probabilities) probability = 1 / (1 + std::exp(-probability));
    size_t best = 0;
    double best_score = -1e9;
    for (size_t v = 0; v < count; ++v) {
      double penalty = -1;
      for (size_t j = 0; j < length; ++j)
        penalty = std::max(penalty, cosine(&hidden[v * dim], &context[j * dim], dim));
      const double score = (1 - alpha) * probabilities[v] - alpha * penalty;
      if (score > best_score + 1e-12) {
        best_score = score;
        best = v;
      }
    }
    const Result<size_t> selected = select_contrastive({probabilities, hidden, context}, alpha);
    ASSERT_TRUE(selected.ok());
    EXPECT_EQ(*selected, best) << "round " << round;
  }
}

TEST(ContrastiveSearch, ARepeatedStateIsPutBehindANewOne) {
  const std::vector<float> probabilities = {0.6F, 0.4F}, hidden = {1, 0, 0, 1}, context = {2, 0};
  EXPECT_EQ(*select_contrastive({probabilities, hidden, context}, 0.0), 0U);
  EXPECT_EQ(*select_contrastive({probabilities, hidden, context}, 0.6), 1U);
}

TEST(ContrastiveSearch, ZeroStatesAreFineAndNaNIsAnError) {
  const std::vector<float> probabilities = {0.6F, 0.4F}, context = {2, 0};
  EXPECT_EQ(*select_contrastive({probabilities, std::vector<float>{0, 0, 0, 0}, context}, 0.5), 0U);
  const Result<size_t> failed =
      select_contrastive({probabilities, std::vector<float>{1, 0, kNaN, 0}, context}, 0.5);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("candidate 1"));
}

TEST(ContrastiveDecoding, EqualsItsDefinition) {
  std::mt19937 generator(4);
  for (int round = 0; round < 100; ++round) {
    const std::vector<float> expert = random_floats(50, generator), amateur = random_floats(50, generator);
    const request::ContrastiveDecoding method{.alpha = 0.05 + 0.9 * (generator() % 100) / 100,
                                              .beta = 0.1 * (generator() % 11)};
    std::vector<float> combined = expert;
    ASSERT_TRUE(combine_contrastive(combined, amateur, method).ok());
    double maximum = 0;
    for (float logit : expert) maximum = std::max(maximum, std::exp(double{logit}));
    for (size_t i = 0; i < expert.size(); ++i) {
      if (std::exp(double{expert[i]}) < method.alpha * maximum) {
        EXPECT_EQ(combined[i], -kInfinity);
      } else {
        EXPECT_NEAR(combined[i], (1 + method.beta) * expert[i] - method.beta * amateur[i], 1e-5);
      }
    }
  }
}

TEST(ContrastiveDecoding, MaskedTokensStayFinite) {
  std::vector<float> expert = {1, 1, -kInfinity};
  ASSERT_TRUE(
      combine_contrastive(expert, std::vector<float>{-kInfinity, -2, 3}, {.alpha = 0.1, .beta = 1}).ok());
  EXPECT_EQ(expert, (std::vector<float>{4, 4, -kInfinity}));
}

TEST(ContrastiveDecoding, RowsThatDoNotFitAreErrors) {
  std::vector<float> expert = {1, 2};
  EXPECT_EQ(combine_contrastive(expert, std::vector<float>{1, 2, 3}, {}).error().message,
            "the amateur model has 3 logits and the expert 2; contrastive decoding needs one vocabulary");
  EXPECT_FALSE(combine_contrastive(expert, std::vector<float>{1, kNaN}, {}).ok());
  EXPECT_FALSE(combine_contrastive(expert, std::vector<float>{-kInfinity, -kInfinity}, {}).ok());
  expert[0] = kInfinity;
  EXPECT_FALSE(combine_contrastive(expert, std::vector<float>{1, 2}, {}).ok());
}

}  // namespace
}  // namespace sluice::sampling
