// Every field of sampling arrives at the engine.
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

class SamplingTest : public testing::Test {
 protected:
  sched::SamplingParams params(std::string_view fields) {
    return rig_.submission("/v1/completions", R"({"prompt":"x",)" + std::string(fields) + "}")
        .request.sampling();
  }
  Rig rig_;
};

TEST_F(SamplingTest, NumbersAndLists) {
  const sched::SamplingParams made = params(
      R"("max_tokens":9,"min_tokens":2,"n":3,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"typical_p":0.8,
         "seed":-1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"65":-100},
         "bad_words":["no"],"allowed_token_ids":[65,66],"stop_token_ids":[10],"ignore_eos":true,"logprobs":4,
         "prompt_logprobs":2,"best_of":5)");
  const auto& sampling = std::get<sched::Sampling>(made.method);
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
  const sched::SamplingParams made = params(R"("stream":false)");
  const auto& sampling = std::get<sched::Sampling>(made.method);
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_FALSE(sampling.seed.has_value());
  EXPECT_FALSE(made.logprobs.has_value());
}

TEST_F(SamplingTest, Searches) {
  const sched::SamplingParams made =
      params(R"("use_beam_search":true,"n":2,"beam_width":4,"length_penalty":0.5,"early_stopping":"never")");
  const auto& beam = std::get<sched::BeamSearch>(made.method);
  EXPECT_EQ(beam.width, 4);
  EXPECT_EQ(beam.length_penalty, 0.5);
  EXPECT_EQ(beam.early_stopping, sched::EarlyStopping::Never);
  EXPECT_EQ(std::get<sched::BeamSearch>(params(R"("use_beam_search":true,"n":3)").method).width, 3);
  const sched::SamplingParams contrastive = params(R"("penalty_alpha":0.6,"top_k":5)");
  EXPECT_EQ(std::get<sched::ContrastiveSearch>(contrastive.method).top_k, 5);
  const sched::SamplingParams decoding = params(R"("contrastive_decoding":{"alpha":0.2},"temperature":0)");
  EXPECT_EQ(std::get<sched::ContrastiveDecoding>(decoding.method).alpha, 0.2);
  EXPECT_EQ(std::get<sched::ContrastiveDecoding>(decoding.method).sampling.temperature, 0);
}

TEST_F(SamplingTest, StopStringsReachTheText) {
  const engine::Submission made =
      rig_.submission("/v1/completions", R"({"prompt":"x","stop":"END","include_stop_str_in_output":true})");
  const std::unique_ptr<engine::ChoiceText> text = made.text(0);
  const std::vector<Token> tokens{'a', 'E', 'N', 'D', 'b'};
  const Result<engine::ChoiceText::Piece> piece = text->push(tokens);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->text, "aEND");
  EXPECT_EQ(piece->stop, "END");
}

}  // namespace
}  // namespace sluice::api
