// Filters against their definitions on long rows, ties and extremes; samples by chi-squared against exact
// probabilities.
#include "sampling/filters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "sampling/mass_cut.h"
#include "sampling/philox.h"
#include "sampling/row_math.h"
#include "sampling/token_sampler.h"
#include "tests/sampling/cases.h"
#include "tests/sampling/reference_filters.h"

namespace sluice::sampling {
namespace {

using request::Sampling;
using request::SamplingParams;

std::vector<float> random_row(size_t size, float spread, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(size);
  for (float& value : row) value = normal(generator);
  return row;
}

const std::vector<Sampling>& combinations() {
  static const std::vector<Sampling> list = {
      {},
      {.temperature = 0.5},
      {.temperature = 2},
      {.top_k = 5},
      {.top_k = 1},
      {.top_p = 0.8},
      {.top_p = 0.05},
      {.min_p = 0.1},
      {.typical_p = 0.6},
      {.temperature = 0.7, .top_k = 20, .top_p = 0.9},
      {.temperature = 1.5, .top_p = 0.95, .min_p = 0.02},
      {.temperature = 1.2, .top_k = 30, .min_p = 0.01, .typical_p = 0.9},
      {.temperature = 0.8, .top_k = 40, .top_p = 0.9, .min_p = 0.05, .typical_p = 0.8},
  };
  return list;
}

std::string name_of(const Sampling& sampling) {
  return "temperature " + std::to_string(sampling.temperature) + " top_k " + std::to_string(sampling.top_k) +
         " top_p " + std::to_string(sampling.top_p) + " min_p " + std::to_string(sampling.min_p) +
         " typical_p " + std::to_string(sampling.typical_p);
}

std::vector<double> filtered(std::span<const float> row, const Sampling& sampling, Workspace& workspace) {
  const Distribution distribution = filter(row, *row_maximum(row), sampling, workspace);
  std::vector<double> probabilities(row.size());
  for (size_t i = 0; i < distribution.tokens.size(); ++i) {
    probabilities[distribution.tokens[i]] = distribution.weights[i] / distribution.total;
  }
  return probabilities;
}

TEST(Filters, EqualTheirDefinitions) {
  Workspace workspace;
  for (size_t size : {1UL, 15UL, 16UL, 17UL, 1000UL, 50257UL}) {
    for (float spread : {0.1F, 1.0F, 4.0F}) {
      const std::vector<float> row = random_row(size, spread, 7);
      for (const Sampling& sampling : combinations()) {
        const std::vector<double> expected = ReferenceFilter::probabilities(row, sampling);
        const std::vector<double> probabilities = filtered(row, sampling, workspace);
        double difference = 0;
        for (size_t i = 0; i < size; ++i) difference += std::abs(probabilities[i] - expected[i]);
        // One token more or less may be inside a cut by rounding.
        EXPECT_LT(difference, 1e-3) << size << " tokens of spread " << spread << ", " << name_of(sampling);
      }
    }
  }
}

TEST(Filters, TiesAreKeptAsInTheDefinitions) {
  Workspace workspace;
  const std::vector<float> row = {1, 3, 3, 3, 2, 3, -kInfinity, -0.0F, 0.0F};
  for (const Sampling& sampling :
       {Sampling{.top_k = 2}, Sampling{.top_p = 0.4}, Sampling{.typical_p = 0.3}, Sampling{.min_p = 1}}) {
    const std::vector<double> expected = ReferenceFilter::probabilities(row, sampling);
    const std::vector<double> probabilities = filtered(row, sampling, workspace);
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(probabilities[i], expected[i], 1e-6) << name_of(sampling);
  }
}

TEST(Filters, ExtremesLeaveOneTokenAtLeast) {
  Workspace workspace;
  const std::vector<float> row = {-3e38F, 3e38F, 2.9e38F, -kInfinity};
  for (const Sampling& sampling :
       {Sampling{.top_p = 0}, Sampling{.typical_p = 1e-45}, Sampling{.min_p = 1e-300},
        Sampling{.temperature = 1e-4}, Sampling{.temperature = 2, .top_p = 1 - 1e-16}}) {
    const std::vector<double> probabilities = filtered(row, sampling, workspace);
    EXPECT_EQ(probabilities[1], 1) << name_of(sampling);
  }
  const std::vector<float> only = {-kInfinity, -3e38F, -kInfinity};
  for (const Sampling& sampling : combinations()) EXPECT_EQ(filtered(only, sampling, workspace)[1], 1);
}

TEST(Filters, GreedyTakesTheFirstOfEquals) {
  Workspace workspace;
  const std::vector<float> row = {1, 5, 5, 2};
  for (double temperature : {0.0, -0.0, 1e-45, 9e-6}) {
    const Distribution distribution = filter(row, 5, {.temperature = temperature, .top_k = 3}, workspace);
    ASSERT_EQ(distribution.tokens.size(), 1U);
    EXPECT_EQ(distribution.tokens[0], 1);
  }
}

TEST(MassCut, EqualsASortOnRandomKeys) {
  std::mt19937 generator(3);
  for (int round = 0; round < 200; ++round) {
    const size_t size = 1 + generator() % 300;
    std::vector<float> keys(size), weights(size);
    for (size_t i = 0; i < size; ++i) {
      keys[i] = static_cast<float>(static_cast<int>(generator() % 41) - 20) * 0.25F;  // many ties, both signs
      weights[i] = static_cast<float>(generator() % 16);
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double mass = static_cast<double>(generator() % 101) / 100 * total;
    std::vector<size_t> order(size);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] > keys[b]; });
    size_t kept = 0;
    for (double sum = 0; kept < size && (kept == 0 || sum < mass); ++kept) sum += weights[order[kept]];
    const float last = keys[order[kept - 1]];
    const auto above = std::count_if(keys.begin(), keys.end(), [&](float key) { return key > last; });
    const MassCut cut = cut_by_mass(keys, weights, mass);
    EXPECT_EQ(cut.key, last);
    EXPECT_EQ(static_cast<size_t>(above) + cut.ties, kept);
  }
}

TEST(RowMath, TopTokensAreSortedAndSkipMaskedOnes) {
  std::vector<float> buffer;
  const std::vector<float> row = {2, -kInfinity, 5, 2, 5, -1};
  EXPECT_EQ(top_tokens(row, 3, buffer), (std::vector<ScoredToken>{{2, 5}, {4, 5}, {0, 2}}));
  EXPECT_EQ(top_tokens(row, 99, buffer).size(), 5U);
  EXPECT_TRUE(top_tokens(row, 0, buffer).empty());
  std::vector<float> ascending(5000);
  std::iota(ascending.begin(), ascending.end(), 0.0F);
  EXPECT_EQ(nth_largest(ascending, 700, buffer), 4300);
}

TEST(RowMath, KeepsWhatABitAllows) {
  for (const size_t size : {1U, 31U, 32U, 70U, 128U, 133U}) {
    for (const size_t words : {0U, 2U, 5U}) {
      std::vector<int32_t> bits(words);
      for (size_t i = 0; i < words; ++i) bits[i] = i == 1 ? -1 : static_cast<int32_t>(0x9E3779B9U * (i + 3));
      const std::vector<float> before = random_row(size, 20, static_cast<unsigned>(size));
      std::vector<float> row = before;
      const Result<MaskedMaxima> maxima = keep_allowed(row, bits);
      ASSERT_TRUE(maxima.ok());
      for (size_t i = 0; i < size; ++i) {
        const bool allowed = i / 32 < words && ((static_cast<uint32_t>(bits[i / 32]) >> (i % 32)) & 1) != 0;
        EXPECT_EQ(row[i], allowed ? before[i] : kMasked) << i << " of " << size;
      }
      EXPECT_EQ(maxima->before, *row_maximum(before));
      EXPECT_EQ(maxima->after, *row_maximum(row));
    }
  }
}

TEST(RowMath, AMaskDoesNotHideABadValue) {
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {0U, 40U, 63U, 130U}) {
      std::vector<float> row = random_row(133, 20, 1);
      row[at] = bad;
      const Error expected = row_maximum(row).error();
      const Result<MaskedMaxima> maxima = keep_allowed(row, std::vector<int32_t>(5));
      ASSERT_FALSE(maxima.ok());
      EXPECT_EQ(maxima.error().message, expected.message);
    }
  }
}

TEST(RowMath, MaskedEntriesAddNothing) {
  std::vector<float> row = random_row(5000, 20, 2);
  for (size_t i = 100; i < 4000; ++i) row[i] = i % 700 == 0 ? row[i] : kMasked;
  std::vector<float> weights = row;
  const ExpScale scale{.offset = *row_maximum(row), .scale = 0.7F};
  EXPECT_EQ(exp_sum(row, scale), exp_in_place(weights, scale));
}

TEST(RowMath, ExponentialsAreThoseOfTheLibrary) {
  std::vector<float> row = random_row(4099, 20, 4);
  row.push_back(-kInfinity);
  const float maximum = *row_maximum(row);
  std::vector<float> weights = row;
  const double total = exp_in_place(weights, {.offset = maximum, .scale = 1.25F});
  double expected_total = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double expected = std::exp(double{(row[i] - maximum) * 1.25F});
    EXPECT_NEAR(weights[i], expected, 2e-7 * expected + 1e-37);
    expected_total += expected;
  }
  EXPECT_NEAR(total, expected_total, 1e-6 * expected_total);
  EXPECT_EQ(exp_sum(row, {.offset = maximum, .scale = 1.25F}), total);
}

// Pearson's statistic, with rare tokens counted together; far above its mean plus five deviations is a wrong
// distribution.
void expect_distributed(std::span<const int> counts, std::span<const double> probabilities,
                        const std::string& name) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0, rare_expected = 0, rare_count = 0;
  int cells = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * probabilities[i];
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << name << ": token " << i << " is filtered out";
    } else if (expected < 10) {
      rare_expected += expected;
      rare_count += counts[i];
    } else {
      statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
      ++cells;
    }
  }
  if (rare_expected > 1) {
    statistic += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom)) << name;
}

TEST(TokenSampler, DrawsFollowTheExactProbabilities) {
  constexpr int kDraws = 40000;
  const std::vector<float> row = random_row(48, 1.5F, 11);
  Workspace workspace;
  for (const Sampling& sampling : combinations()) {
    auto params = std::make_shared<SamplingParams>();
    params->method = sampling;
    TokenSampler sampler({.params = params, .vocab = static_cast<int>(row.size()), .seed = 99});
    std::vector<int> counts(row.size());
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> logits = row;
      const Result<request::Sampled> sampled = sampler.sample(logits, workspace);
      ASSERT_TRUE(sampled.ok());
      ++counts[sampled->token];
      sampler.accept(sampled->token);
    }
    expect_distributed(counts, ReferenceFilter::probabilities(row, sampling), name_of(sampling));
  }
}

// With the samples of many requests at one position, so that streams of neighbouring seeds and choices are
// independent.
TEST(TokenSampler, FirstDrawsOfDifferentSeedsAndChoicesFollowTheProbabilities) {
  constexpr uint32_t kSeeds = 400, kChoices = 100;
  const std::vector<float> row = random_row(32, 1, 12);
  Workspace workspace;
  const Distribution distribution = filter(row, *row_maximum(row), {}, workspace);
  std::vector<int> counts(row.size());
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    for (uint32_t choice = 0; choice < kChoices; ++choice) {
      ++counts[pick(distribution, uniform({.seed = seed, .choice = choice, .position = 0}))];
    }
  }
  expect_distributed(counts, ReferenceFilter::probabilities(row, {}), "seeds and choices");
}

}  // namespace
}  // namespace sluice::sampling
