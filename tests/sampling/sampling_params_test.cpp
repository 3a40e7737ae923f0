// The table of bad values: every float field and every integer field, and the checks across fields.
#include "request/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <limits>
#include <string>

namespace sluice::sched {
namespace {

using ::testing::HasSubstr;

constexpr int kSampledVocab = 1000;

template <class T>
struct Field {
  std::string name;
  std::function<void(request::SamplingParams&, T)> set;
};

const std::vector<Field<double>>& float_fields() {
  static const std::vector<Field<double>> fields = {
      {"temperature",
       [](request::SamplingParams& p, double v) { p.method = request::Sampling{.temperature = v}; }},
      {"top_p", [](request::SamplingParams& p, double v) { p.method = request::Sampling{.top_p = v}; }},
      {"min_p", [](request::SamplingParams& p, double v) { p.method = request::Sampling{.min_p = v}; }},
      {"typical_p",
       [](request::SamplingParams& p, double v) { p.method = request::Sampling{.typical_p = v}; }},
      {"repetition_penalty", [](request::SamplingParams& p, double v) { p.repetition_penalty = v; }},
      {"presence_penalty", [](request::SamplingParams& p, double v) { p.presence_penalty = v; }},
      {"frequency_penalty", [](request::SamplingParams& p, double v) { p.frequency_penalty = v; }},
      {"logit_bias",
       [](request::SamplingParams& p, double v) {
         p.logit_bias = {{3, v}};
       }},
      {"length_penalty",
       [](request::SamplingParams& p, double v) { p.method = request::BeamSearch{.length_penalty = v}; }},
      {"penalty_alpha",
       [](request::SamplingParams& p, double v) { p.method = request::ContrastiveSearch{.alpha = v}; }},
      {"contrastive_decoding.alpha",
       [](request::SamplingParams& p, double v) { p.method = request::ContrastiveDecoding{.alpha = v}; }},
      {"contrastive_decoding.beta",
       [](request::SamplingParams& p, double v) { p.method = request::ContrastiveDecoding{.beta = v}; }},
  };
  return fields;
}

const std::vector<Field<int>>& int_fields() {
  static const std::vector<Field<int>> fields = {
      {"n", [](request::SamplingParams& p, int v) { p.n = v; }},
      {"best_of", [](request::SamplingParams& p, int v) { p.method = request::Sampling{.best_of = v}; }},
      {"beam_width", [](request::SamplingParams& p, int v) { p.method = request::BeamSearch{.width = v}; }},
      {"top_k", [](request::SamplingParams& p, int v) { p.method = request::ContrastiveSearch{.top_k = v}; }},
      {"max_tokens", [](request::SamplingParams& p, int v) { p.max_tokens = v; }},
      {"min_tokens", [](request::SamplingParams& p, int v) { p.min_tokens = v; }},
      {"logprobs", [](request::SamplingParams& p, int v) { p.logprobs = v; }},
      {"prompt_logprobs", [](request::SamplingParams& p, int v) { p.prompt_logprobs = v; }},
      {"logit_bias",
       [](request::SamplingParams& p, int v) {
         p.logit_bias = {{v, 0}};
       }},
      {"bad_words",
       [](request::SamplingParams& p, int v) {
         p.bad_words = {{1, v}};
       }},
      {"allowed_token_ids", [](request::SamplingParams& p, int v) { p.allowed_tokens = {v}; }},
      {"stop_token_ids", [](request::SamplingParams& p, int v) { p.stop_tokens = {v}; }},
  };
  return fields;
}

void expect_refused(const request::SamplingParams& params, const std::string& words) {
  Status status = request::validate(params, kSampledVocab);
  ASSERT_FALSE(status.ok()) << words;
  EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr(words));
}

TEST(SamplingParams, DefaultsAreValid) {
  EXPECT_TRUE(request::validate(request::SamplingParams{}, kSampledVocab).ok());
}

TEST(SamplingParams, EveryFloatRefusesWhatIsNoNumberOrTooLarge) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const auto& field : float_fields()) {
    for (double value : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity, 1e308, -1e308}) {
      request::SamplingParams params;
      field.set(params, value);
      expect_refused(params, field.name + " is ");
      EXPECT_EQ(request::validate(params, kSampledVocab).error().field, field.name);
    }
  }
}

TEST(SamplingParams, EveryIntegerRefusesWhatIsOutOfRange) {
  for (const auto& field : int_fields()) {
    for (int value : {-1, INT_MIN, INT_MAX}) {
      request::SamplingParams params;
      field.set(params, value);
      expect_refused(params, field.name);
      EXPECT_EQ(request::validate(params, kSampledVocab).error().field, field.name);
      EXPECT_THAT(request::validate(params, kSampledVocab).error().message, HasSubstr(std::to_string(value)));
    }
  }
}

TEST(SamplingParams, TopKOfSamplingIsClampedOrOff) {
  for (int value : {-1, 0, 1, kSampledVocab, INT_MAX}) {
    EXPECT_TRUE(request::validate({.method = request::Sampling{.top_k = value}}, kSampledVocab).ok())
        << value;
  }
  expect_refused({.method = request::Sampling{.top_k = -2}}, "top_k is -2");
  expect_refused({.method = request::Sampling{.top_k = INT_MIN}}, "top_k is -2147483648");
}

TEST(SamplingParams, TinyAndNegativeZeroAreNumbersLikeOthers) {
  EXPECT_TRUE(request::validate({.method = request::Sampling{.temperature = -0.0}}, kSampledVocab).ok());
  EXPECT_TRUE(request::validate({.method = request::Sampling{.temperature = 1e-45}}, kSampledVocab).ok());
  EXPECT_TRUE(request::validate({.method = request::Sampling{.typical_p = 1e-45}}, kSampledVocab).ok());
  expect_refused({.method = request::Sampling{.typical_p = -0.0}}, "typical_p is -0");
  expect_refused({.repetition_penalty = 1e-45}, "repetition_penalty is 1e-45");
}

TEST(SamplingParams, FieldsAreCheckedAgainstEachOther) {
  expect_refused({.min_tokens = 17}, "min_tokens is 17; it must not be over max_tokens, which is 16");
  expect_refused({.n = 3, .method = request::Sampling{.best_of = 2}},
                 "best_of is 2; it must be at least n, which is 3");
  expect_refused({.n = 5, .method = request::BeamSearch{.width = 4}}, "n is 5; beam search of width 4");
  expect_refused({.n = 2, .method = request::ContrastiveSearch{}}, "n is 2; contrastive search has 1 result");
  expect_refused({.n = 3, .method = request::ContrastiveDecoding{.sampling = {.best_of = 2}}},
                 "best_of is 2");
}

TEST(SamplingParams, ListsAreBounded) {
  request::SamplingParams params;
  params.logit_bias.resize(1025);
  expect_refused(params, "logit_bias has 1025 entries; the limit is 1024");
  expect_refused({.bad_words = {{}}}, "bad_words holds an empty entry");
  expect_refused({.bad_words = std::vector<std::vector<Token>>(129, {1})}, "bad_words has 129 entries");
  expect_refused({.bad_words = {std::vector<Token>(1025, 1)}},
                 "bad_words has 1025 tokens in all entries; the limit is 1024");
  expect_refused({.allowed_tokens = std::vector<Token>{}}, "allowed_token_ids is empty");
  expect_refused({.allowed_tokens = std::vector<Token>(kSampledVocab + 1, 1)},
                 "allowed_token_ids has 1001 entries");
  expect_refused({.stop_tokens = std::vector<Token>(129, 1)}, "stop_token_ids has 129 entries");
  expect_refused({.stop_tokens = {kSampledVocab}},
                 "stop_token_ids holds token 1000; the vocabulary ends at 999");
}

TEST(SamplingParams, CountsSequencesOfEachMethod) {
  EXPECT_EQ(request::sequence_count({.n = 2}), 2);
  EXPECT_EQ(request::sequence_count({.n = 2, .method = request::Sampling{.best_of = 5}}), 5);
  EXPECT_EQ(request::sequence_count({.n = 2, .method = request::BeamSearch{.width = 6}}), 6);
  EXPECT_EQ(request::sequence_count({.method = request::ContrastiveSearch{.top_k = 5}}), 5);
  EXPECT_EQ(request::sequence_count({.n = 3, .method = request::ContrastiveDecoding{}}), 3);
}

}  // namespace
}  // namespace sluice::sched
