// Processors and filters against transformers on random logits, and by hand where it has no counterpart.
#include "sampling/processors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "sampling/token_sampler.h"
#include "tests/sampling/cases.h"

namespace sluice::sampling {
namespace {

using request::Sampling;
using request::SamplingParams;

void set_number(const json::object& from, const char* key, double& into) {
  if (const json::value* value = from.if_contains(key)) into = value->to_number<double>();
}

SamplingParams params_of(const json::object& from) {
  SamplingParams params;
  Sampling sampling;
  set_number(from, "repetition_penalty", params.repetition_penalty);
  set_number(from, "presence_penalty", params.presence_penalty);
  set_number(from, "frequency_penalty", params.frequency_penalty);
  set_number(from, "temperature", sampling.temperature);
  set_number(from, "min_p", sampling.min_p);
  set_number(from, "top_p", sampling.top_p);
  set_number(from, "typical_p", sampling.typical_p);
  if (const auto* value = from.if_contains("top_k")) sampling.top_k = value->to_number<int>();
  if (const auto* value = from.if_contains("min_tokens")) params.min_tokens = value->to_number<int>();
  if (const auto* value = from.if_contains("allowed_tokens")) params.allowed_tokens = tokens(*value);
  if (const auto* value = from.if_contains("bad_words")) {
    for (const json::value& word : value->as_array()) params.bad_words.push_back(tokens(word));
  }
  if (const auto* value = from.if_contains("logit_bias")) {
    for (const json::value& entry : value->as_array()) {
      params.logit_bias.push_back({entry.at(0).to_number<Token>(), entry.at(1).to_number<double>()});
    }
  }
  params.method = sampling;
  return params;
}

TEST(Processors, EqualTransformersOnRandomLogits) {
  const std::vector<Token> ends = {7, 11};
  for (const json::value& entry : load_cases("processors.json")) {
    const json::object& test = entry.as_object();
    const auto params = std::make_shared<SamplingParams>(params_of(test.at("params").as_object()));
    std::vector<float> logits = floats(test.at("logits"));
    ASSERT_TRUE(request::validate(*params, static_cast<int>(logits.size())).ok());
    const Processors processors(params, ends);
    TokenHistory history(tokens(test.at("prompt")), processors.needs());
    for (Token token : tokens(test.at("output"))) history.append(token);
    std::vector<float> scratch;
    processors.apply(logits, history, scratch);
    const std::vector<float> expected = floats(test.at("processed"));
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isinf(expected[i])) {
        EXPECT_EQ(logits[i], expected[i]) << "token " << i << " of " << json::serialize(test.at("params"));
      } else {
        EXPECT_NEAR(logits[i], expected[i], 2e-6 * std::max(1.0F, std::abs(expected[i])))
            << "token " << i << " of " << json::serialize(test.at("params"));
      }
    }
  }
}

TEST(Filters, EqualTransformersOnRandomLogits) {
  const std::vector<Token> ends = {7, 11};
  Workspace workspace;
  for (const json::value& entry : load_cases("processors.json")) {
    const json::object& test = entry.as_object();
    std::vector<float> logits = floats(test.at("logits"));
    const std::vector<Token> prompt = tokens(test.at("prompt"));
    TokenSampler sampler(
        {.params = std::make_shared<SamplingParams>(params_of(test.at("params").as_object())),
         .vocab = static_cast<int>(logits.size()),
         .prompt = prompt,
         .eos_tokens = ends});
    for (Token token : tokens(test.at("output"))) sampler.accept(token);
    const Result<Distribution> distribution = sampler.distribution(logits, workspace);
    ASSERT_TRUE(distribution.ok());
    std::vector<double> probabilities(logits.size());
    for (size_t i = 0; i < distribution->tokens.size(); ++i) {
      probabilities[distribution->tokens[i]] = distribution->weights[i] / distribution->total;
    }
    const std::vector<float> expected = floats(test.at("probabilities"));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(probabilities[i], expected[i], 1e-6 + 2e-5 * expected[i])
          << "token " << i << " of " << json::serialize(test.at("params"));
    }
  }
}

TEST(TokenHistory, RollbackGivesBackTheCountsOfBefore) {
  const std::vector<Token> prompt = {1, 2, 3};
  TokenHistory history(prompt, {.prompt_counts = true, .output_counts = true, .tail = 2});
  history.append(3);
  history.append(9);
  history.append(9);
  EXPECT_TRUE(history.ends_with(std::vector<Token>{3, 9, 9}));
  history.rollback(2);
  EXPECT_EQ(history.output().size(), 1U);
  EXPECT_TRUE(history.ends_with(std::vector<Token>{2, 3, 3}));
  EXPECT_FALSE(history.ends_with(std::vector<Token>{1, 2, 3, 3})) << "only two tokens of the prompt are kept";
  for (const TokenCount& count : history.counts()) {
    EXPECT_EQ(count.output, count.token == 3 ? 1 : 0);
    EXPECT_EQ(count.in_prompt, count.token <= 3);
  }
}

TEST(Processors, PenaltiesFollowRollback) {
  auto params = std::make_shared<SamplingParams>();
  params->frequency_penalty = 0.5;
  params->presence_penalty = 1;
  params->repetition_penalty = 2;
  const Processors processors(params, {});
  const std::vector<Token> prompt = {0, 1};
  TokenHistory history(prompt, processors.needs());
  for (Token token : {1, 2, 2, 3}) history.append(token);
  history.rollback(1);
  std::vector<float> logits = {4, -4, 4, 4}, scratch;
  processors.apply(logits, history, scratch);
  EXPECT_EQ(logits, (std::vector<float>{2, -8 - 0.5F - 1, 2 - 1 - 1, 4}));
}

TEST(Processors, EndTokensAreMaskedUntilMinTokens) {
  auto params = std::make_shared<SamplingParams>();
  params->min_tokens = 2;
  params->stop_tokens = {3};
  const std::vector<Token> eos = {1, 5000};
  TokenSampler sampler({.params = params, .vocab = 4, .eos_tokens = eos});
  Workspace workspace;
  for (int step = 0; step < 3; ++step) {
    std::vector<float> logits = {0, 5, 1, 4};
    const Result<Distribution> distribution = sampler.distribution(logits, workspace);
    ASSERT_TRUE(distribution.ok());
    EXPECT_EQ(distribution->tokens.size(), step < 2 ? 2U : 4U);
    sampler.accept(0);
  }
  EXPECT_TRUE(sampler.ends(1) && sampler.ends(3));
  EXPECT_FALSE(sampler.ends(0) || sampler.ends(5000)) << "a token without a logit ends nothing";
}

TEST(Processors, IgnoredEosNeitherEndsNorIsMasked) {
  auto params = std::make_shared<SamplingParams>();
  params->min_tokens = 2;
  params->ignore_eos = true;
  const std::vector<Token> eos = {1};
  const TokenSampler sampler({.params = params, .vocab = 4, .eos_tokens = eos});
  EXPECT_FALSE(sampler.ends(1));
  Workspace workspace;
  std::vector<float> logits = {0, 5, 1, 4};
  EXPECT_EQ(sampler.distribution(logits, workspace)->tokens.size(), 4U);
}

}  // namespace
}  // namespace sluice::sampling
