// Searches through executor and engine against references: transformers' beam search, and contrastive search and
// decoding written out from their definitions (tools/make_search_cases.py).
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "rig.h"

namespace sluice::runtime::test {
namespace {

json::array cases(const char* kind) {
  std::ifstream file(kData + "/search.json");
  std::ostringstream text;
  text << file.rdbuf();
  const Result<json::value> all = parse_json(text.str(), "search.json");
  if (!all) throw std::runtime_error(all.error().message);
  return all->as_object().at(kind).as_array();
}

std::vector<Token> tokens(const json::value& list) {
  return json::value_to<std::vector<Token>>(list);
}

request::Request request_of(const json::object& entry) {
  return greedy_request(tokens(entry.at("prompt")), entry.at("max_tokens").to_number<int>());
}

double number(const json::object& entry, const char* name) {
  return entry.at(name).to_number<double>();
}

request::BeamSearch beam_of(const json::object& entry) {
  request::BeamSearch beam{.width = entry.at("beam_width").to_number<int>(),
                           .length_penalty = number(entry, "length_penalty")};
  const json::value& early = entry.at("early_stopping");
  beam.early_stopping = early.is_string()  ? request::EarlyStopping::Never
                        : early.get_bool() ? request::EarlyStopping::AtWidth
                                           : request::EarlyStopping::Heuristic;
  return beam;
}

void expect_beams(const RigOptions& base) {
  for (const json::value& value : cases("beam")) {
    const json::object& entry = value.as_object();
    RigOptions options = base;
    options.end_tokens = tokens(entry.at("end_tokens"));
    Rig rig(options);
    request::Request request = request_of(entry);
    request.sampling().method = beam_of(entry);
    request.sampling().n = entry.at("n").to_number<int>();
    const Answer answer = rig.run(std::move(request));
    ASSERT_FALSE(answer.error());
    const json::array& expected = entry.at("answers").as_array();
    ASSERT_EQ(answer.choices.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(answer.tokens(i), tokens(expected[i])) << "choice " << i << " of " << json::serialize(entry);
      EXPECT_NEAR(answer.scores[i], entry.at("scores").as_array()[i].to_number<double>(), 1e-3);
    }
  }
}

TEST(BeamSearch, EqualsTransformers) {
  expect_beams({});
}

TEST(BeamSearch, EqualsTransformersWhenPromptsAreCutAndBlocksAreScarce) {
  RigOptions options{.blocks = {60, 0, 0}, .block_size = 3};
  options.scheduler.max_step_tokens = 6;
  expect_beams(options);
}

void expect_contrastive_search(const RigOptions& options) {
  Rig rig(options);
  for (const json::value& value : cases("contrastive_search")) {
    const json::object& entry = value.as_object();
    request::Request request = request_of(entry);
    request.sampling().method = request::ContrastiveSearch{.top_k = entry.at("top_k").to_number<int>(),
                                                           .alpha = number(entry, "alpha")};
    const Answer answer = rig.run(std::move(request));
    ASSERT_FALSE(answer.error());
    EXPECT_EQ(answer.tokens(), tokens(entry.at("answer"))) << json::serialize(entry);
  }
}

// The log-probabilities of an answer are those that its tokens have as part of a prompt.
void expect_logprobs_of_prompt(const request::Request& request, const Answer& answer, size_t choice) {
  request::Request oracle = greedy_request(request.prompt, 1);
  for (const request::Sampled& token : answer.choices[choice]) oracle.prompt.push_back(token.token);
  oracle.sampling().prompt_logprobs = request.sampling().logprobs;
  const Answer expected = Rig().run(oracle);
  ASSERT_EQ(expected.prompt_logprobs.size(), oracle.prompt.size() - 1);
  for (size_t i = 0; i < answer.choices[choice].size(); ++i) {
    const request::Sampled& token = answer.choices[choice][i];
    const request::Sampled& truth = expected.prompt_logprobs[request.prompt.size() - 1 + i];
    ASSERT_EQ(token.token, truth.token);
    EXPECT_NEAR(token.logprob, truth.logprob, 1e-4);
    ASSERT_EQ(token.top.size(), truth.top.size());
    for (size_t j = 0; j < token.top.size(); ++j) {
      EXPECT_EQ(token.top[j].token, truth.top[j].token);
      EXPECT_NEAR(token.top[j].logprob, truth.top[j].logprob, 1e-4);
    }
  }
}

TEST(BeamSearch, ReportsTheLogprobsOfEveryHypothesis) {
  request::Request request = greedy_request(words(9, 3), 6);
  request.sampling().method = request::BeamSearch{.width = 3};
  request.sampling().n = 3;
  request.sampling().logprobs = 12;  // more than the candidates of a beam
  const Answer answer = Rig().run(request);
  ASSERT_FALSE(answer.error());
  ASSERT_EQ(answer.choices.size(), 3u);
  for (size_t i = 0; i < 3; ++i) expect_logprobs_of_prompt(request, answer, i);
}

TEST(ContrastiveSearch, ReportsLogprobs) {
  request::Request request = greedy_request(words(9, 3), 6);
  request.sampling().method = request::ContrastiveSearch{.top_k = 4, .alpha = 0.6};
  request.sampling().logprobs = 5;
  const Answer answer = Rig().run(request);
  ASSERT_FALSE(answer.error());
  ASSERT_EQ(answer.choices.size(), 1u);
  ASSERT_EQ(answer.choices[0].size(), 6u);
  expect_logprobs_of_prompt(request, answer, 0);
}

// Reported is the row as the model gave it, as for sampled tokens.
TEST(ContrastiveSearch, ReportsLogprobsBeforePenalties) {
  request::Request request = greedy_request(words(9, 3), 6);
  request.sampling().method = request::ContrastiveSearch{.top_k = 4, .alpha = 0.6};
  request.sampling().logprobs = 2;
  request.sampling().repetition_penalty = 3;
  request.sampling().frequency_penalty = 1;
  const Answer answer = Rig().run(request);
  ASSERT_FALSE(answer.error());
  expect_logprobs_of_prompt(request, answer, 0);
}

TEST(ContrastiveSearch, EqualsItsDefinition) {
  expect_contrastive_search({});
}

// The same prompts come again under every setting, so that later ones could be served from the prefix cache.
TEST(ContrastiveSearch, EqualsItsDefinitionWhenPromptsAreCut) {
  RigOptions options{.block_size = 3};
  options.scheduler.max_step_tokens = 7;
  expect_contrastive_search(options);
}

TEST(ContrastiveDecoding, EqualsItsDefinition) {
  Rig rig({.amateur = "amateur"});
  for (const json::value& value : cases("contrastive_decoding")) {
    const json::object& entry = value.as_object();
    request::Request request = request_of(entry);
    request.sampling().method = request::ContrastiveDecoding{
        .alpha = number(entry, "alpha"), .beta = number(entry, "beta"), .sampling = {.temperature = 0}};
    const Answer answer = rig.run(std::move(request));
    ASSERT_FALSE(answer.error());
    EXPECT_EQ(answer.tokens(), tokens(entry.at("answer"))) << json::serialize(entry);
  }
}

TEST(ContrastiveDecoding, NeedsAnAmateur) {
  Rig rig;
  request::Request request = greedy_request(words(5, 1), 4);
  request.sampling().method = request::ContrastiveDecoding{};
  const Answer answer = rig.run(std::move(request));
  ASSERT_TRUE(answer.error());
  EXPECT_NE(answer.error()->message.find("--amateur"), std::string::npos);
}

// Layers with a window of 12 beside layers without, over prompts and answers longer than it.
TEST(WindowedModel, EqualsTransformers) {
  for (const int budget : {3, 512}) {
    RigOptions options{.model = "windowed"};
    options.scheduler.max_step_tokens = budget;
    options.scheduler.max_seqs = 3;
    Rig rig(options);
    for (const json::value& value : cases("greedy")) {
      const Answer answer = rig.run(request_of(value.as_object()));
      EXPECT_EQ(answer.tokens(), tokens(value.as_object().at("answer"))) << json::serialize(value);
    }
  }
}

}  // namespace
}  // namespace sluice::runtime::test
