// Grammars and lists of allowed tokens are masks of the rows that an asynchronous device samples from.
#include <gtest/gtest.h>

#include "grammar/grammar_gate.h"
#include "rig.h"

namespace sluice::runtime::test {
namespace {

const AheadBackend& device(const Rig& rig) {
  return dynamic_cast<const AheadBackend&>(*rig.backend);
}

RigOptions options(bool ahead) {
  RigOptions options;
  options.ahead = ahead;
  options.grammars = character_grammars(Rig().model->spec().vocab);
  return options;
}

request::Request held_to(const std::string& pattern, uint32_t seed, int max_tokens = 24) {
  request::Request request = greedy_request(words(5 + seed % 7, seed), max_tokens);
  request.sampling().constraint = request::Constraint{request::Pattern{pattern}, ""};
  request.sampling().method = request::Sampling{.temperature = 1, .seed = seed};
  return request;
}

// Constrained and free, with forced runs of tokens, edits beside the mask, log-probabilities, several choices, ends by
// length and by the grammar.
std::vector<request::Request> masked_kinds() {
  std::vector<request::Request> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(held_to("[a-m]{3,9}", 20 + i));
  requests.push_back(held_to("[a-m]abcdef[a-m]gh[a-m]", 31));
  requests.push_back(held_to("abc[a-m]x[0-9]yz", 32));
  requests.push_back(held_to("[a-z ]*", 33, 12));
  requests.push_back(held_to("[a-m]abcdef[a-m]gh[a-m]", 34, 5));
  requests.push_back(held_to("[a-m]{4}xyz[0-9]", 35));
  requests.back().sampling().frequency_penalty = 0.7;
  requests.back().sampling().logit_bias = {{70, 2}};
  requests.push_back(held_to("[a-m]{4}xyz[0-9]", 36));
  requests.back().sampling().logprobs = 3;
  requests.push_back(held_to("[a-m]qrs[0-9]{2}", 37));
  requests.back().sampling().n = 3;
  requests.push_back(greedy_request(words(6, 38), 14));
  requests.back().sampling().allowed_tokens = words(40, 3);
  requests.push_back(held_to("[a-m]{3,9}", 39));
  requests.back().sampling().prompt_logprobs = 1;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(greedy_request(words(8, 40 + i), 10));
  return requests;
}

TEST(MaskedRows, AreSampledByTheDevice) {
  Rig host(options(false)), ahead(options(true));
  const std::vector<request::Request> requests = masked_kinds();
  for (const request::Request& request : requests) {
    host.submit(request);
    ahead.submit(request);
  }
  host.finish();
  ahead.finish();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(ahead.answer(i).ends.size(), 1u);
    ASSERT_FALSE(ahead.answer(i).error()) << ahead.answer(i).error()->message;
    EXPECT_EQ(ahead.answer(i).ends[0].reason, host.answer(i).ends[0].reason);
    ASSERT_EQ(ahead.answer(i).choices.size(), host.answer(i).choices.size());
    for (size_t choice = 0; choice < host.answer(i).choices.size(); ++choice)
      EXPECT_EQ(ahead.answer(i).tokens(choice), host.answer(i).tokens(choice));
  }
  EXPECT_GT(device(ahead).masked_rows, 60);
  EXPECT_EQ(device(ahead).sent_rows, 0);    // no logits of theirs leave the device
  EXPECT_GT(device(ahead).begun_ahead, 8);  // a forward pass begins before the masks' tokens are known
}

TEST(MaskedRows, ForcedTokensTakeNoStepsOfTheirOwn) {
  const auto steps = [](std::optional<int> logprobs, std::vector<Token>& tokens) {
    Rig rig(options(true));
    request::Request request = held_to("[a-m]abcdefghijklmnop[a-m]", 31);
    request.sampling().logprobs = logprobs;
    tokens = rig.run(std::move(request)).tokens();
    return device(rig).steps();
  };
  std::vector<Token> one_by_one, jumped;
  const int64_t all = steps(0, one_by_one);  // log-probabilities need every row
  const int64_t fewer = steps(std::nullopt, jumped);
  EXPECT_EQ(one_by_one, jumped);
  EXPECT_EQ(jumped.size(), 18u);
  EXPECT_LE(fewer + 12, all);
}

// The grammar comes when the prompt has run up to its last token.
TEST(LateGrammar, HoldsTheAnswerAllTheSame) {
  std::vector<request::Request> requests{held_to("[a-m]{3,9}", 20), held_to("[a-m]abcdef[a-m]gh[a-m]", 31),
                                         held_to("[a-m]qrs[0-9]{2}", 37), held_to("[a-m]*", 41, 8)};
  requests[2].sampling().n = 3;
  requests[3].sampling().method = request::BeamSearch{.width = 3};
  for (const bool ahead : {false, true}) {
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      const auto gate = std::make_shared<request::Gate>();
      request::Request late = requests[i];
      late.gate = gate;
      Rig rig(options(ahead)), prompt(options(ahead));
      const size_t answer = rig.submit(late);
      while (rig.step()) continue;
      EXPECT_TRUE(rig.answer(answer).ends.empty());
      EXPECT_EQ(rig.engine->metrics().run_tokens.value(), late.prompt.size() - 1);
      gate->settle({});
      rig.finish();
      const Answer expected = prompt.run(requests[i]);
      ASSERT_EQ(rig.answer(answer).ends.size(), 1u);
      ASSERT_FALSE(rig.answer(answer).error()) << rig.answer(answer).error()->message;
      ASSERT_EQ(rig.answer(answer).choices.size(), expected.choices.size());
      for (size_t choice = 0; choice < expected.choices.size(); ++choice)
        EXPECT_EQ(rig.answer(answer).tokens(choice), expected.tokens(choice));
    }
  }
}

// Nothing is looked for in the store, nor compiled a second time, where the gate has the grammar.
TEST(LateGrammar, ComesWithItsGate) {
  for (const bool open_before : {false, true}) {
    const RigOptions here = options(false);
    const auto elsewhere = character_grammars(Rig().model->spec().vocab);
    const auto gate = std::make_shared<grammar::GrammarGate>();
    request::Request request = held_to("[a-m]qrs[0-9]{2}", 37);
    const request::Constraint constraint = *request.sampling().constraint;
    request.gate = gate;
    Rig rig(here);
    if (open_before) gate->settle_with(elsewhere->get(constraint));
    const size_t answer = rig.submit(request);
    if (!open_before) {
      while (rig.step()) continue;
      gate->settle_with(elsewhere->get(constraint));
    }
    rig.finish();
    ASSERT_FALSE(rig.answer(answer).error()) << rig.answer(answer).error()->message;
    EXPECT_EQ(rig.answer(answer).tokens(), Rig(options(false)).run(held_to("[a-m]qrs[0-9]{2}", 37)).tokens());
    EXPECT_EQ(here.grammars->statistics().compiled, 0);
  }
}

TEST(MaskedRows, AViolationFailsItsRequestAlone) {
  Rig rig(options(true));
  request::Request wrong = greedy_request(words(5, 3), 40);
  wrong.sampling().constraint = request::Constraint{
      request::JsonSchema{.schema = R"({"enum":[[1,1]],"uniqueItems":true})", .compact = true}, ""};
  const size_t failed = rig.submit(std::move(wrong));
  const size_t other = rig.submit(held_to("[a-m]{3,9}", 20));
  rig.finish();
  EXPECT_TRUE(rig.answer(failed).error());
  EXPECT_FALSE(rig.answer(other).error());
  EXPECT_EQ(rig.answer(other).tokens(), Rig(options(false)).run(held_to("[a-m]{3,9}", 20)).tokens());
}

}  // namespace
}  // namespace sluice::runtime::test
