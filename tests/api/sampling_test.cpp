// Every field of sampling arrives at the engine.
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

class SamplingTest : public testing::Test {
 protected:
  request::SamplingParams params(std::string_view fields) {
    return rig_.submission("/v1/completions", R"({"prompt":"x",)" + std::string(fields) + "}")
        .request.sampling();
  }
  Rig rig_;
};

TEST_F(SamplingTest, NumbersAndLists) {
  const request::SamplingParams made = params(
      R"("max_tokens":9,"min_tokens":2,"n":3,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"typical_p":0.8,
         "seed":-1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"65":-100},
         "bad_words":["no"],"allowed_token_ids":[65,66],"stop_token_ids":[10],"ignore_eos":true,"logprobs":4,
         "prompt_logprobs":2,"best_of":5)");
  const auto& sampling = std::get<request::Sampling>(made.method);
  EXPECT_EQ(made.max_tokens, 9);
  EXPECT_EQ(made.min_tokens, 2);
  EXPECT_EQ(made.n, 3);
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.typical_p, 0.8);
  EXPECT_EQ(sampling.seed, ~uint64_t{0});
  EXPECT_EQ(sampling.best_of, 5);
  EXPECT_EQ(made.presence_penalty, 1);
  EXPECT_EQ(made.frequency_penalty, -1);
  EXPECT_EQ(made.repetition_penalty, 1.5);
  ASSERT_EQ(made.logit_bias.size(), 1u);
  EXPECT_EQ(made.logit_bias[0].token, 65);
  EXPECT_EQ(made.logit_bias[0].bias, -100);
  EXPECT_EQ(made.bad_words, (std::vector<std::vector<Token>>{{'n', 'o'}, {' ', 'n', 'o'}}));
  EXPECT_EQ(made.allowed_tokens, (std::vector<Token>{65, 66}));
  EXPECT_EQ(made.stop_tokens, std::vector<Token>{10});
  EXPECT_TRUE(made.ignore_eos);
  EXPECT_EQ(made.logprobs, 4);
  EXPECT_EQ(made.prompt_logprobs, 2);
}

TEST_F(SamplingTest, Defaults) {
  const request::SamplingParams made = params(R"("stream":false)");
  const auto& sampling = std::get<request::Sampling>(made.method);
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_FALSE(sampling.seed.has_value());
  EXPECT_FALSE(made.logprobs.has_value());
}

// What a request that says nothing about sampling is answered with.
struct Chosen {
  double temperature, top_p;
  int top_k;
  double min_p, repetition_penalty;
  bool operator==(const Chosen&) const = default;
};
void PrintTo(const Chosen& chosen, std::ostream* out) {
  *out << chosen.temperature << " " << chosen.top_p << " " << chosen.top_k << " " << chosen.min_p << " "
       << chosen.repetition_penalty;
}

class ModelDefaults : public testing::Test {
 protected:
  Chosen chosen(std::string_view path, std::string_view body) {
    const request::SamplingParams made = rig_.submission(path, body).request.sampling();
    const auto& sampling = std::get<request::Sampling>(made.method);
    return {sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, made.repetition_penalty};
  }
  Rig rig_;
  const std::string chat_ = R"({"max_tokens":9,"messages":[{"role":"user","content":"Hi"}]})";
  const std::string text_ = R"({"prompt":"Hi"})";
};

TEST_F(ModelDefaults, AreTheSameInEveryDialect) {
  rig_.models.front().defaults = {.temperature = 0.2, .top_p = 0.9, .repetition_penalty = 1.1};
  const Chosen model{0.2, 0.9, 0, 0, 1.1};
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/api/chat"})
    EXPECT_EQ(chosen(path, chat_), model) << path;
  for (const char* path : {"/v1/completions", "/completion", "/api/generate"})
    EXPECT_EQ(chosen(path, text_), model) << path;
  EXPECT_EQ(chosen("/v1/responses", R"({"input":"Hi"})"), model);
}

TEST_F(ModelDefaults, GiveWayToTheRequest) {
  rig_.models.front().defaults = {
      .temperature = 0.2, .top_p = 0.9, .min_p = 0.3, .repetition_penalty = 1.1, .top_k = 5};
  EXPECT_EQ(chosen("/v1/completions", R"({"prompt":"Hi","temperature":1,"top_p":1,"repetition_penalty":1})"),
            (Chosen{1, 1, 5, 0.3, 1}));
  EXPECT_EQ(chosen("/v1/completions", R"({"prompt":"Hi","top_k":0,"min_p":0})"),
            (Chosen{0.2, 0.9, 0, 0, 1.1}));
  EXPECT_EQ(chosen("/api/generate", R"({"prompt":"Hi","options":{"temperature":0.7}})"),
            (Chosen{0.7, 0.9, 5, 0.3, 1.1}));
}

TEST_F(ModelDefaults, OfModelsWithoutSettingsAreTheDialects) {
  EXPECT_EQ(chosen("/v1/chat/completions", chat_), (Chosen{1, 1, 0, 0, 1}));
  EXPECT_EQ(chosen("/api/generate", text_), (Chosen{0.8, 0.9, 40, 0, 1}));
  EXPECT_EQ(chosen("/completion", text_), (Chosen{0.8, 0.95, 40, 0.05, 1}));
}

TEST_F(ModelDefaults, LeaveSearchesAlone) {
  rig_.models.front().defaults = {.temperature = 0.2, .top_k = 50};
  const request::SamplingParams made =
      rig_.submission("/v1/completions", R"({"prompt":"Hi","penalty_alpha":0.6})").request.sampling();
  EXPECT_EQ(std::get<request::ContrastiveSearch>(made.method).top_k, 4);
  EXPECT_EQ(rig_.refusal("/v1/completions", R"({"prompt":"Hi","use_beam_search":true})"), "accepted");
}

TEST_F(ModelDefaults, AreShown) {
  rig_.models.front().defaults = {.temperature = 0.2, .repetition_penalty = 1.1, .top_k = 5};
  const auto get = [&](std::string_view path) { return std::get<Answer>(rig_.call("GET", path, "")).body; };
  EXPECT_NE(get("/v1/models").find(R"("sampling":{"temperature":0.2,"top_k":5,"repetition_penalty":1.1})"),
            std::string::npos);
  EXPECT_NE(get("/props").find(R"("params":{"temperature":0.2,"top_k":5,"repeat_penalty":1.1})"),
            std::string::npos);
  EXPECT_NE(rig_.answer("/v1/responses", R"({"input":"Hi"})",
                        {{0, delta("ok")}, {0, choice_end()}, {0, finished(2, 0, 1)}})
                .find(R"("temperature":0.2)"),
            std::string::npos);
}

TEST_F(ModelDefaults, SpeculationIsChosenInEveryDialect) {
  const auto speculate = [&](std::string_view path, std::string body) {
    body.insert(body.size() - 1, R"(,"speculate":"suffix")");
    return rig_.submission(path, body).request.sampling().speculate;
  };
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/api/chat"}) {
    EXPECT_EQ(speculate(path, chat_), request::Speculation::Suffix) << path;
    EXPECT_FALSE(rig_.submission(path, chat_).request.sampling().speculate.has_value()) << path;
  }
  for (const char* path : {"/v1/completions", "/completion", "/api/generate"})
    EXPECT_EQ(speculate(path, text_), request::Speculation::Suffix) << path;
  EXPECT_EQ(speculate("/v1/responses", R"({"input":"Hi"})"), request::Speculation::Suffix);
  EXPECT_EQ(
      rig_.refusal("/v1/completions", R"({"prompt":"x","speculate":"guess"})"),
      "400 invalid_value speculate: 'speculate' is \"guess\"; it must be " + request::speculation_names());
}

TEST_F(SamplingTest, Searches) {
  const request::SamplingParams made =
      params(R"("use_beam_search":true,"n":2,"beam_width":4,"length_penalty":0.5,"early_stopping":"never")");
  const auto& beam = std::get<request::BeamSearch>(made.method);
  EXPECT_EQ(beam.width, 4);
  EXPECT_EQ(beam.length_penalty, 0.5);
  EXPECT_EQ(beam.early_stopping, request::EarlyStopping::Never);
  EXPECT_EQ(std::get<request::BeamSearch>(params(R"("use_beam_search":true,"n":3)").method).width, 3);
  const request::SamplingParams contrastive = params(R"("penalty_alpha":0.6,"top_k":5)");
  EXPECT_EQ(std::get<request::ContrastiveSearch>(contrastive.method).top_k, 5);
  const request::SamplingParams decoding = params(R"("contrastive_decoding":{"alpha":0.2},"temperature":0)");
  EXPECT_EQ(std::get<request::ContrastiveDecoding>(decoding.method).alpha, 0.2);
  EXPECT_EQ(std::get<request::ContrastiveDecoding>(decoding.method).sampling.temperature, 0);
}

TEST_F(SamplingTest, SearchesReportLogprobs) {
  for (const char* search : {R"("use_beam_search":true,"n":2)", R"("penalty_alpha":0.6)"}) {
    EXPECT_EQ(params(std::string(search) + R"(,"logprobs":3)").logprobs, 3) << search;
    const std::string chat =
        R"({"messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":2,)" +
        std::string(search) + "}";
    EXPECT_EQ(rig_.submission("/v1/chat/completions", chat).request.sampling().logprobs, 2) << search;
  }
}

// A field that the method cannot honour is refused by name, with its value and what it conflicts with.
TEST_F(SamplingTest, FieldsOfOtherMethodsAreRefused) {
  const auto refusal = [&](const std::string& fields) {
    return rig_.refusal("/v1/completions", R"({"prompt":"x",)" + fields + "}");
  };
  const std::string beams = R"("use_beam_search":true,"n":2,)", contrastive = R"("penalty_alpha":0.6,)";
  const struct {
    std::string method, field, value, conflict;
  } cases[] = {
      {beams, "temperature", "0.7", "beam search ('use_beam_search')"},
      {beams, "top_p", "0.9", "beam search ('use_beam_search')"},
      {beams, "top_k", "40", "beam search ('use_beam_search')"},
      {beams, "min_p", "0.1", "beam search ('use_beam_search')"},
      {beams, "typical_p", "0.5", "beam search ('use_beam_search')"},
      {beams, "penalty_alpha", "0.6", "beam search ('use_beam_search')"},
      {beams + R"("beam_width":4,)", "best_of", "3", "beam search ('use_beam_search')"},
      {contrastive, "temperature", "0.7", "contrastive search ('penalty_alpha')"},
      {contrastive, "top_p", "0.9", "contrastive search ('penalty_alpha')"},
      {contrastive, "min_p", "0.1", "contrastive search ('penalty_alpha')"},
      {contrastive, "typical_p", "0.5", "contrastive search ('penalty_alpha')"},
      {contrastive, "best_of", "2", "contrastive search ('penalty_alpha')"},
      {contrastive, "beam_width", "2", "contrastive search ('penalty_alpha')"},
      {beams, "speculate", "\"suffix\"", "beam search ('use_beam_search')"},
      {contrastive, "speculate", "\"auto\"", "contrastive search ('penalty_alpha')"},
      {"", "beam_width", "4", "sampling (without 'use_beam_search')"},
      {"", "length_penalty", "2", "sampling (without 'use_beam_search')"},
      {"", "early_stopping", "true", "sampling (without 'use_beam_search')"},
      {"", "early_stopping", "\"never\"", "sampling (without 'use_beam_search')"},
  };
  for (const auto& [method, field, value, conflict] : cases)
    EXPECT_EQ(
        refusal(method + "\"" + field + "\":" + value),
        "400 invalid_value " + field + ": '" + field + "' is " + value + "; it conflicts with " + conflict);
  EXPECT_EQ(refusal(contrastive + R"("contrastive_decoding":{})"),
            "400 invalid_value contrastive_decoding: 'contrastive_decoding' is given; it conflicts with "
            "contrastive search ('penalty_alpha')");
}

// Clients send defaults along; vLLM's want temperature 0 beside beams.
TEST_F(SamplingTest, ValuesThatAskForNothingStandBesideSearches) {
  const std::string neutral =
      R"("temperature":0,"top_p":1,"min_p":0,"typical_p":1,"seed":7,"length_penalty":1,"early_stopping":false,)";
  EXPECT_EQ(std::get<request::BeamSearch>(
                params(neutral + R"("use_beam_search":true,"best_of":3,"beam_width":3,"top_k":-1)").method)
                .width,
            3);
  EXPECT_EQ(
      std::get<request::ContrastiveSearch>(params(neutral + R"("penalty_alpha":0.6,"top_k":5)").method).top_k,
      5);
  EXPECT_EQ(std::get<request::Sampling>(params(neutral + R"("penalty_alpha":0,"beam_width":1)").method).seed,
            uint64_t{7});
}

TEST_F(SamplingTest, StopStringsReachTheText) {
  const engine::Submission made =
      rig_.submission("/v1/completions", R"({"prompt":"x","stop":"END","include_stop_str_in_output":true})");
  const std::unique_ptr<engine::TextStream> text = made.text(0);
  const std::vector<Token> tokens{'a', 'E', 'N', 'D', 'b'};
  const Result<engine::TextStream::Piece> piece = text->push(tokens);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->text, "aEND");
  EXPECT_EQ(piece->stop, "END");
}

}  // namespace
}  // namespace sluice::api
