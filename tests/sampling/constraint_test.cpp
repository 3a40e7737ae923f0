// Samplers whose request has a grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "sampling/token_sampler.h"

namespace sluice::sampling {
namespace {

constexpr int kByteVocab = 257;
constexpr Token kByteEnd = 256;
const std::vector<Token> kByteEnds{kByteEnd};

std::shared_ptr<const grammar::CompiledGrammar> grammar_of(request::Constraint constraint) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  auto vocabulary = std::make_shared<const grammar::Vocabulary>(std::move(tokens), kByteEnds);
  Result<grammar::PreparedConstraint> prepared = grammar::prepare(constraint);
  EXPECT_TRUE(prepared.ok());
  auto grammar = grammar::CompiledGrammar::compile(std::move(*prepared), vocabulary);
  EXPECT_TRUE(grammar.ok());
  return *grammar;
}

TokenSampler constrained_sampler(request::Constraint constraint, request::SamplingParams params = {}) {
  params.constraint = constraint;
  return TokenSampler({.params = std::make_shared<const request::SamplingParams>(std::move(params)),
                       .vocab = kByteVocab,
                       .eos_tokens = kByteEnds,
                       .seed = 1,
                       .grammar = grammar_of(constraint)});
}

// A row that would rather have the higher token.
std::vector<float> rising_row() {
  std::vector<float> logits(kByteVocab);
  for (int i = 0; i < kByteVocab; ++i) logits[static_cast<size_t>(i)] = static_cast<float>(i) / 8;
  return logits;
}

std::string write_text(TokenSampler& sampler, int steps) {
  Workspace workspace;
  std::string text;
  for (int i = 0; i < steps && !sampler.fulfilled(); ++i) {
    std::vector<float> logits = rising_row();
    const Result<request::Sampled> sampled = sampler.sample(logits, workspace);
    EXPECT_TRUE(sampled.ok()) << sampled.error().message;
    if (!sampled) break;
    if (sampled->token < 256) text += static_cast<char>(sampled->token);
    sampler.accept(sampled->token);
  }
  return text;
}

TEST(ConstrainedSampler, NamesTheOnlyTokenThatCanFollow) {
  TokenSampler sampler = constrained_sampler({request::Choice{{"abc", "abd"}}, ""});
  EXPECT_EQ(sampler.forced(), 'a');
  EXPECT_EQ(sampler.forced(), 'a');
  sampler.accept('a');
  sampler.accept(*sampler.forced());
  EXPECT_EQ(sampler.forced(), std::nullopt);  // c or d
  EXPECT_THAT(write_text(sampler, 3), testing::AnyOf("c", "d"));
  sampler.rollback(2);
  EXPECT_EQ(sampler.forced(), 'b');
  // Log-probabilities need the logits, and a processor may forbid the token.
  EXPECT_EQ(constrained_sampler({request::Choice{{"abc"}}, ""}, {.logprobs = 0}).forced(), std::nullopt);
  EXPECT_EQ(constrained_sampler({request::Choice{{"abc"}}, ""}, {.bad_words = {{'a'}}}).forced(),
            std::nullopt);
}

TEST(ConstrainedSampler, SamplesWhatTheGrammarAllows) {
  TokenSampler sampler = constrained_sampler({request::Choice{{"abc", "abd", "x"}}, ""},
                                             {.method = request::Sampling{.temperature = 0}});
  EXPECT_EQ(write_text(sampler, 1), "x");
  EXPECT_TRUE(sampler.fulfilled());
  EXPECT_FALSE(sampler.violation().has_value());
}

TEST(ConstrainedSampler, EveryAnswerAtTemperatureOneFits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TokenSampler sampler = constrained_sampler({request::Pattern{"[a-c]{2,4}[0-9]"}, ""},
                                               {.method = request::Sampling{.temperature = 1, .seed = seed}});
    const std::string text = write_text(sampler, 6).substr(0, 5);
    ASSERT_GE(text.size(), 3U);
    for (size_t i = 0; i + 1 < text.size(); ++i) EXPECT_TRUE(text[i] >= 'a' && text[i] <= 'c') << text;
    EXPECT_TRUE(text.back() >= '0' && text.back() <= '9') << text;
    EXPECT_TRUE(sampler.fulfilled());
  }
}

TEST(ConstrainedSampler, PenaltiesCannotLiftTheMask) {
  request::SamplingParams params{.method = request::Sampling{.temperature = 0}};
  params.logit_bias = {{.token = 'z', .bias = 100}};
  TokenSampler sampler = constrained_sampler({request::Choice{{"ab"}}, ""}, params);
  EXPECT_EQ(write_text(sampler, 2), "ab");
}

TEST(ConstrainedSampler, ForksAndRollsBack) {
  TokenSampler sampler = constrained_sampler({request::Choice{{"ab", "ac"}}, ""},
                                             {.method = request::Sampling{.temperature = 0}});
  EXPECT_EQ(write_text(sampler, 1), "a");
  TokenSampler child = sampler.fork(1);
  EXPECT_EQ(write_text(sampler, 1), "c");
  EXPECT_TRUE(sampler.fulfilled());
  EXPECT_FALSE(child.fulfilled());
  sampler.rollback(1);
  EXPECT_FALSE(sampler.fulfilled());
  EXPECT_EQ(write_text(sampler, 1), "c");
  child.accept('b');
  EXPECT_TRUE(child.fulfilled());
}

TEST(ConstrainedSampler, ReportsWhatDoesNotFit) {
  TokenSampler sampler = constrained_sampler(
      {request::JsonSchema{R"({"type":"array","uniqueItems":true,"items":{"const":1}})"}, ""});
  for (const char c : std::string("[1,1]")) sampler.accept(static_cast<unsigned char>(c));
  ASSERT_TRUE(sampler.violation().has_value());
  EXPECT_EQ(sampler.violation()->field, grammar::kSchemaViolation);
  Workspace workspace;
  std::vector<float> logits = rising_row();
  EXPECT_FALSE(sampler.sample(logits, workspace).ok());
}

TEST(ConstrainedSampler, BeamsSeeTheMask) {
  const TokenSampler sampler =
      constrained_sampler({request::Choice{{"a", "b"}}, ""}, {.method = request::BeamSearch{.width = 4}});
  Workspace workspace;
  std::vector<float> logits = rising_row();
  const auto candidates = sampler.beam_candidates(logits, 4, workspace);
  ASSERT_TRUE(candidates.ok());
  ASSERT_EQ(candidates->size(), 2U);
  EXPECT_EQ((*candidates)[0].token, 'b');
}

}  // namespace
}  // namespace sluice::sampling
