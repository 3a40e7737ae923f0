// Tokens that a constraint leaves no choice about, and searches under constraints.
#include <gtest/gtest.h>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

request::Request constrained(std::optional<int> logprobs, int max_tokens = 20) {
  request::Request request = greedy_request(words(9, 4), max_tokens);
  request.sampling().constraint = request::Constraint{request::Pattern{"[a-m]abcdef[a-m]gh[a-m]"}, ""};
  request.sampling().logprobs = logprobs;
  return request;
}

std::string text_of(const std::vector<Token>& tokens) {
  std::string text;
  for (const Token token : tokens) text += static_cast<char>(' ' + token);
  return text;
}

TEST(ForcedTokens, RunWithoutStepsOfTheirOwn) {
  for (const bool prefix_cache : {true, false}) {
    RigOptions options{.prefix_cache = prefix_cache};
    options.grammars = character_grammars(Rig().model->spec().vocab);
    Rig rig(options);
    const auto steps = [&](const request::Request& request, std::vector<Token>& tokens) {
      const size_t answer = rig.submit(request);
      int count = 0;
      while (rig.step()) ++count;
      EXPECT_EQ(rig.answer(answer).ends.size(), 1u);
      const auto& error = rig.answer(answer).error();
      EXPECT_FALSE(error) << error->message;
      tokens = rig.answer(answer).tokens();
      return count;
    };
    std::vector<Token> one_by_one, jumped, cut;
    const int all = steps(constrained(0), one_by_one);  // log-probabilities need every row
    const int fewer = steps(constrained(std::nullopt), jumped);
    EXPECT_EQ(text_of(one_by_one), text_of(jumped));
    EXPECT_EQ(text_of(jumped).substr(1, 6), "abcdef");
    EXPECT_EQ(jumped.size(), 11u);
    EXPECT_LE(fewer + 8, all);
    // max_tokens counts them.
    (void)steps(constrained(std::nullopt, 4), cut);
    EXPECT_EQ(cut, std::vector<Token>(jumped.begin(), jumped.begin() + 4));
  }
}

// The vocabulary has no token that ends a text.
TEST(ConstrainedSearch, EndsWhereTheConstraintIsComplete) {
  RigOptions options;
  options.grammars = character_grammars(Rig().model->spec().vocab);
  Rig rig(options);
  request::Request request = constrained(std::nullopt);
  request.sampling().method = request::BeamSearch{.width = 3};
  request.sampling().n = 3;
  const Answer beams = rig.run(request);
  ASSERT_FALSE(beams.error()) << beams.error()->message;
  ASSERT_EQ(beams.choices.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(beams.tokens(i).size(), 11u);
    EXPECT_EQ(text_of(beams.tokens(i)).substr(1, 6), "abcdef");
  }
  request.sampling().n = 1;
  request.sampling().method = request::ContrastiveSearch{.top_k = 4, .alpha = 0.6};
  const Answer contrastive = rig.run(request);
  ASSERT_FALSE(contrastive.error()) << contrastive.error()->message;
  EXPECT_EQ(contrastive.tokens().size(), 11u);
}

}  // namespace
}  // namespace sluice::runtime::test
