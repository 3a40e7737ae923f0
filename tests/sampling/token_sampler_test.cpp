// The sampler of one sequence: seeds, failures that stay with the request, log-probabilities, forks.
#include "sampling/token_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "sampling/philox.h"
#include "tests/sampling/cases.h"

namespace sluice::sampling {
namespace {

using request::Sampling;
using request::SamplingParams;
using ::testing::HasSubstr;

constexpr int kSmallVocab = 64;

// Logits that a model might give: a function of the last token.
std::vector<float> row_after(Token token) {
  std::mt19937 generator(static_cast<uint32_t>(token) + 1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> row(kSmallVocab);
  for (float& value : row) value = normal(generator);
  return row;
}

TokenSampler sampler_of(SamplingParams params, uint64_t seed = 1, uint32_t choice = 0) {
  return TokenSampler({.params = std::make_shared<SamplingParams>(std::move(params)),
                       .vocab = kSmallVocab,
                       .seed = seed,
                       .choice = choice});
}

Token step(TokenSampler& sampler, Workspace& workspace) {
  std::vector<float> row = row_after(sampler.output().empty() ? 0 : sampler.output().back());
  const Token token = sampler.sample(row, workspace)->token;
  sampler.accept(token);
  return token;
}

std::vector<Token> run(TokenSampler sampler, int steps) {
  Workspace workspace;
  for (int i = 0; i < steps; ++i) step(sampler, workspace);
  return {sampler.output().begin(), sampler.output().end()};
}

// Known answers of the published generator.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(TokenSampler, SameSeedSameTokensWhateverRunsBeside) {
  const std::vector<Token> alone = run(sampler_of({}, 42), 30);
  Workspace shared;
  std::vector<TokenSampler> batch;
  for (uint64_t seed : {7, 42, 42, 8})
    batch.push_back(sampler_of({.presence_penalty = seed == 8 ? 1.0 : 0.0}, seed));
  for (int i = 0; i < 30; ++i) {
    for (size_t s = 0; s < batch.size(); ++s) {
      if (s == 3 && i % 3 == 0) continue;  // a neighbour that comes and goes
      step(batch[s], shared);
    }
  }
  for (size_t s : {1U, 2U}) {
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch[s].output().begin(), batch[s].output().end()));
  }
  EXPECT_NE(run(sampler_of({}, 43), 30), alone);
  EXPECT_NE(run(sampler_of({}, 42, 1), 30), alone);
}

TEST(TokenSampler, TokensTakenBackAreDrawnAgainAlike) {
  const SamplingParams params{.repetition_penalty = 1.3, .frequency_penalty = 0.4};
  TokenSampler sampler = sampler_of(params, 5);
  Workspace workspace;
  for (int i = 0; i < 20; ++i) step(sampler, workspace);
  const std::vector<Token> first(sampler.output().begin(), sampler.output().end());
  sampler.rollback(12);
  for (int i = 0; i < 12; ++i) step(sampler, workspace);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), sampler.output().begin(), sampler.output().end()));
}

TEST(TokenSampler, AForkIsTheOtherChoiceWithTheSamePast) {
  const SamplingParams params{.frequency_penalty = 0.4};
  const TokenSampler first = sampler_of(params, 5, 0);
  EXPECT_EQ(run(first.fork(3), 25), run(sampler_of(params, 5, 3), 25));
  TokenSampler later = first;
  Workspace workspace;
  for (int i = 0; i < 5; ++i) step(later, workspace);
  const std::vector<Token> forked = run(later.fork(3), 5);
  EXPECT_TRUE(std::equal(later.output().begin(), later.output().end(), forked.begin(), forked.begin() + 5));
}

TEST(TokenSampler, ABadRowIsAnErrorThatNamesTheToken) {
  Workspace workspace;
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.method = Sampling{.temperature = 0}},
                                       SamplingParams{.logprobs = 2}, SamplingParams{.repetition_penalty = 2},
                                       SamplingParams{.method = Sampling{.top_k = 3, .top_p = 0.5}}}) {
    const TokenSampler sampler = sampler_of(params);
    for (size_t at : {size_t{0}, size_t{17}, size_t{kSmallVocab - 1}}) {
      for (float value : {kNaN, kInfinity}) {
        std::vector<float> row = row_after(0);
        row[at] = value;
        const Result<request::Sampled> sampled = sampler.sample(row, workspace);
        ASSERT_FALSE(sampled.ok());
        EXPECT_EQ(sampled.error().code, ErrorCode::Numerical);
        EXPECT_THAT(sampled.error().message, HasSubstr("the logit of token " + std::to_string(at) + " is"));
      }
    }
    std::vector<float> empty(kSmallVocab, -kInfinity);
    EXPECT_EQ(sampler.sample(empty, workspace).error().code, ErrorCode::Numerical);
    std::vector<float> good = row_after(0);
    EXPECT_TRUE(sampler.sample(good, workspace).ok()) << "a failure leaves nothing behind";
  }
}

TEST(TokenSampler, ConstraintsThatLeaveNothingAreTheRequestsFault) {
  Workspace workspace;
  const TokenSampler sampler = sampler_of({.bad_words = {{4}}, .allowed_tokens = std::vector<Token>{4}});
  std::vector<float> row = row_after(0);
  const Result<request::Sampled> sampled = sampler.sample(row, workspace);
  ASSERT_FALSE(sampled.ok());
  EXPECT_EQ(sampled.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(sampled.error().message, HasSubstr("leave no token to choose at output position 0"));
}

TEST(TokenSampler, LogprobsAreOfTheRawRow) {
  Workspace workspace;
  const SamplingParams params{.logit_bias = {{9, 100}},
                              .bad_words = {{3}},
                              .logprobs = 3,
                              .method = Sampling{.temperature = 0.1, .top_k = 1}};
  const TokenSampler sampler = sampler_of(params);
  const std::vector<float> raw = row_after(0);
  std::vector<float> row = raw;
  const Result<request::Sampled> sampled = sampler.sample(row, workspace);
  ASSERT_TRUE(sampled.ok());
  EXPECT_EQ(sampled->token, 9);
  double total = 0;
  for (float logit : raw) total += std::exp(double{logit});
  EXPECT_NEAR(sampled->logprob, raw[9] - std::log(total), 1e-5);
  ASSERT_EQ(sampled->top.size(), 3U);
  const auto best = std::max_element(raw.begin(), raw.end());
  EXPECT_EQ(sampled->top[0].token, best - raw.begin());
  EXPECT_NEAR(sampled->top[0].logprob, *best - std::log(total), 1e-5);
  EXPECT_GE(sampled->top[1].logprob, sampled->top[2].logprob);
}

TEST(TokenSampler, LogprobsComeOnlyWhereTheyAreNeeded) {
  Workspace workspace;
  std::vector<float> row = row_after(0);
  EXPECT_EQ(sampler_of({}).sample(row, workspace)->logprob, 0);
  row = row_after(0);
  EXPECT_LT(sampler_of({.method = Sampling{.best_of = 2}}).sample(row, workspace)->logprob, 0);
  row = row_after(0);
  const request::Sampled chosen = *sampler_of({.logprobs = 0}).sample(row, workspace);
  EXPECT_LT(chosen.logprob, 0);
  EXPECT_TRUE(chosen.top.empty());
}

TEST(Logprobs, OfAPromptTokenAreTheLogSoftmax) {
  std::vector<float> scratch;
  const std::vector<float> row = {0, std::log(3.0F), -kInfinity};
  const Result<request::Sampled> second = token_logprobs(row, 1, 5, scratch);
  ASSERT_TRUE(second.ok());
  EXPECT_NEAR(second->logprob, std::log(0.75), 1e-6);
  ASSERT_EQ(second->top.size(), 2U) << "a token of no probability is not among the likeliest";
  EXPECT_NEAR(second->top[1].logprob, std::log(0.25), 1e-6);
  EXPECT_EQ(second->rank, 1);
  EXPECT_EQ(token_logprobs(row, 0, 0, scratch)->rank, 2);
  EXPECT_EQ(token_logprobs(row, 2, 0, scratch)->rank, 3);
  EXPECT_EQ(token_logprobs(std::vector<float>{1, 1, 0}, 0, 0, scratch)->rank, 2) << "equals count";
  EXPECT_EQ(token_logprobs(row, 2, 0, scratch)->logprob, -kInfinity);
  EXPECT_FALSE(token_logprobs(std::vector<float>{0, kNaN}, 0, 1, scratch).ok());
}

TEST(TokenSampler, LikeliestAreProbabilitiesAfterTheProcessors) {
  Workspace workspace;
  const TokenSampler sampler = sampler_of({.bad_words = {{1}}, .method = request::ContrastiveSearch{}});
  std::vector<float> row(kSmallVocab, -kInfinity);
  row[0] = 0;
  row[1] = 9;
  row[2] = std::log(3.0F);
  const auto top = sampler.likeliest(row, 4, workspace);
  ASSERT_TRUE(top.ok());
  ASSERT_EQ(top->size(), 2U);
  EXPECT_EQ((*top)[0].token, 2);
  EXPECT_NEAR((*top)[0].score, 0.75, 1e-6);
  EXPECT_NEAR((*top)[1].score, 0.25, 1e-6);
}

TEST(BestChoices, AreTheLikeliestInOrder) {
  const std::vector<double> sums = {-3, -1, -2, -1, -kInfinity};
  EXPECT_EQ(best_choices(sums, 3), (std::vector<size_t>{1, 3, 2}));
  EXPECT_EQ(best_choices(sums, 9).size(), 5U);
}

}  // namespace
}  // namespace sluice::sampling
