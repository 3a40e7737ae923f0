// Speculation: guesses are found where they should be, and answers are the same bytes with and without them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "rig.h"
#include "runtime/speculation/draft_control.h"
#include "runtime/speculation/suffix_automaton.h"

namespace sluice::runtime::test {
namespace {

// The longest end of the tokens that also ends earlier.
int longest_repeat(const std::vector<Token>& tokens) {
  int best = 0;
  const auto size = static_cast<int>(tokens.size());
  for (int end = 1; end < size; ++end) {
    int length = 0;
    while (length < end &&
           tokens[static_cast<size_t>(end - 1 - length)] == tokens[static_cast<size_t>(size - 1 - length)])
      ++length;
    best = std::max(best, length);
  }
  return best;
}

TEST(SuffixAutomaton, KnowsTheLongestRepeatAndWhereItEnds) {
  std::mt19937 random(5);
  for (const int alphabet : {1, 2, 3, 20}) {
    SuffixAutomaton automaton;
    std::vector<Token> tokens;
    for (int i = 0; i < 300; ++i) {
      tokens.push_back(static_cast<Token>(random() % static_cast<unsigned>(alphabet)));
      automaton.append(tokens.back());
      const SuffixAutomaton::Match& match = automaton.longest_repeat();
      ASSERT_EQ(match.length, longest_repeat(tokens)) << "alphabet " << alphabet << ", token " << i;
      if (match.length == 0) continue;
      ASSERT_LT(match.end, tokens.size());
      ASSERT_GE(match.end, static_cast<size_t>(match.length));
      EXPECT_TRUE(std::equal(tokens.end() - match.length, tokens.end(),
                             tokens.begin() + static_cast<long>(match.end) - match.length));
    }
    EXPECT_LE(automaton.states(), 2 * tokens.size() + 1);
  }
}

std::vector<Token> guess(Proposer& proposer, const std::vector<Token>& tokens, int most) {
  std::vector<Token> drafts;
  proposer.append(tokens);
  proposer.propose(most, drafts);
  return drafts;
}

TEST(Proposer, GuessesWhatFollowedTheLastOccurrence) {
  const std::vector<Token> text{1, 2, 3, 9, 8, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3};
  EXPECT_EQ(guess(*make_suffix_proposer(), text, 4), (std::vector<Token>{4, 5, 6, 7}));
  EXPECT_EQ(guess(*make_ngram_proposer(), text, 4), (std::vector<Token>{4, 5, 6, 7}));
}

TEST(Proposer, GuessesNothingWhereNothingRepeats) {
  EXPECT_TRUE(guess(*make_suffix_proposer(), {1, 2, 3, 4}, 4).empty());
  EXPECT_TRUE(guess(*make_ngram_proposer(), {1, 2, 3, 4}, 4).empty());
}

TEST(Proposer, GoesOnWithAPeriod) {
  EXPECT_EQ(guess(*make_suffix_proposer(), {7, 1, 2, 1, 2, 1, 2}, 5), (std::vector<Token>{1, 2, 1, 2, 1}));
}

TEST(Proposer, OfAForkGoesItsOwnWay) {
  std::unique_ptr<Proposer> parent = make_suffix_proposer();
  guess(*parent, {1, 2, 3, 1, 2}, 1);
  std::unique_ptr<Proposer> child = parent->clone();
  EXPECT_EQ(guess(*child, {3, 1}, 1), (std::vector<Token>{2}));
  EXPECT_EQ(guess(*parent, {4, 1}, 2), (std::vector<Token>{2, 4}));
}

int worth(DraftControl& control, int match) {
  const Guess guess{Speculation::Suffix, match, 16};
  const int drafts = control.choose({&guess, 1}).drafts;
  control.note_step(1);
  return drafts;
}

void note_right(DraftControl& control, int match, int accepted) {
  control.note_verified(match, {Speculation::Suffix, 4, accepted});
}

TEST(DraftControl, VerifiesMoreWhereDraftsAreRightAndTokensCheap) {
  DraftControl control({.most = 16});
  for (int tokens = 1; tokens <= 17; ++tokens) control.note_cost(tokens, 1 + 0.05 * tokens);
  for (int i = 0; i < 200; ++i) {
    note_right(control, 8, 4);
    note_right(control, 1, 0);
  }
  EXPECT_EQ(worth(control, 8), 16);
  EXPECT_EQ(worth(control, 1), 0);
}

TEST(DraftControl, VerifiesNoneWhereEachTokenCostsAStep) {
  DraftControl control({.most = 16});
  for (int tokens = 1; tokens <= 17; ++tokens) control.note_cost(tokens, tokens);
  int verified = 0;
  for (int i = 0; i < 130; ++i) {
    if (worth(control, 8) == 0) continue;
    ++verified;
    note_right(control, 8, 4);
  }
  EXPECT_EQ(verified, 2) << "now and then one is tried, so that a change is noticed";
}

// Where a step runs ahead already, what is offered is not verified.
TEST(DraftControl, OffersATryUntilItIsVerified) {
  DraftControl control({.most = 16});
  for (int tokens = 1; tokens <= 17; ++tokens) control.note_cost(tokens, tokens);
  while (worth(control, 8) == 0) {
  }
  EXPECT_GT(worth(control, 8), 0);
  const Guess guess{Speculation::Suffix, 8, 16};
  EXPECT_GT(control.choose({&guess, 1}).drafts, 0);
  EXPECT_EQ(control.choose({&guess, 1}).drafts, 0) << "of one sequence of a step";
  note_right(control, 8, 4);
  EXPECT_EQ(worth(control, 8), 0);
}

TEST(DraftControl, CountsWhatTheOthersOfTheStepLose) {
  // A draft that is right three times in four, in a step that takes a tenth longer with each token.
  const auto verified = [](int sequences) {
    DraftControl control({.most = 1});
    for (int tokens = sequences; tokens <= sequences + 1; ++tokens)
      control.note_cost(tokens, 1 + 0.1 * (tokens - sequences));
    for (int i = 0; i < 100; ++i) {
      note_right(control, 4, 4);
      note_right(control, 4, 4);
      note_right(control, 4, 4);
      note_right(control, 4, 0);
    }
    control.note_step(sequences);
    const Guess guess{Speculation::Suffix, 4, 1};
    return control.choose({&guess, 1}).drafts;
  };
  EXPECT_EQ(verified(1), 1);
  EXPECT_EQ(verified(16), 0) << "one token more for sixteen, a tenth of the time more for each";
}

// A pass of the draft model is worth it for sixteen sequences, though not for one of them.
TEST(DraftControl, SharesThePassesOfADraftModel) {
  DraftControl control({.most = 2});
  for (int tokens = 1; tokens <= 64; ++tokens) control.note_cost(tokens, 1);
  control.note_draft_cost(1, 0.3);
  for (int i = 0; i < 100; ++i) control.note_verified(4, {Speculation::Draft, 2, 2});
  const Guess guess{Speculation::Draft, 4, 2};
  int drafted = 0;
  for (int step = 0; step < 2; ++step) {
    drafted = 0;
    control.note_step(16);
    for (int i = 0; i < 16; ++i) drafted += control.choose({&guess, 1}).drafts;
  }
  EXPECT_EQ(drafted, 32);
  control.note_step(16);
  control.choose({&guess, 1});  // the others have no guess of a model
  control.note_step(16);
  EXPECT_EQ(control.choose({&guess, 1}).drafts, 0);
}

// All of them have as many drafts, and what they say of the step's cost is that of its passes, once.
TEST(DraftControl, ChoosesADraftModelsDraftsForAllSequences) {
  DraftControl control({.most = 16});
  for (int tokens = 1; tokens <= 64; ++tokens) control.note_cost(tokens, 1 + 0.01 * tokens);
  control.note_draft_cost(1, 0.1);
  for (int i = 0; i < 400; ++i) control.note_verified(4, {Speculation::Draft, 1, i % 5 == 0 ? 0 : 1});
  const Guess guess{Speculation::Draft, 4, 16};
  std::vector<DraftControl::Choice> choices;
  for (int step = 0; step < 2; ++step) {
    choices.clear();
    control.note_step(8);
    for (int i = 0; i < 8; ++i) choices.push_back(control.choose({&guess, 1}));
  }
  const int drafts = choices[0].drafts;
  EXPECT_GE(drafts, 3);
  EXPECT_LE(drafts, 8);
  double cost = 0;
  for (const DraftControl::Choice& choice : choices) {
    EXPECT_EQ(choice.drafts, drafts);
    cost += choice.cost;
  }
  EXPECT_NEAR(cost, (8 * drafts * 0.01 + drafts * 0.1) / 1.08, 1e-6);
}

// A size between that seems dear makes no choice cheaper than nothing, and adds nothing to the cost of the step.
TEST(DraftControl, SharesTheCostOfAStepAmongItsSequences) {
  DraftControl control({.most = 1});
  for (int i = 0; i < 8; ++i) {
    control.note_cost(32, 1);
    control.note_cost(40, 3);
    control.note_cost(64, 1.3);
  }
  control.note_draft_cost(1, 0.1);
  for (int i = 0; i < 400; ++i) control.note_verified(4, {Speculation::Draft, 1, i % 5 == 0 ? 0 : 1});
  const Guess guess{Speculation::Draft, 4, 16};
  double cost = 0;
  for (int step = 0; step < 2; ++step) {
    cost = 0;
    control.note_step(32);
    for (int i = 0; i < 32; ++i) {
      const DraftControl::Choice choice = control.choose({&guess, 1});
      if (step == 1) {
        EXPECT_EQ(choice.drafts, 1);  // it is known then how many share the passes
      }
      EXPECT_GE(choice.cost, 0);
      cost += choice.cost;
    }
  }
  EXPECT_NEAR(cost, 0.4, 0.02);
}

// Most steps are of one size: what they say of the machine holds for the sizes that were measured before.
TEST(DraftControl, KnowsSizesThatAreSeldomRunWhereTheMachineSlowsDown) {
  DraftControl control({.most = 4});
  for (int i = 0; i < 20; ++i) {
    control.note_cost(16, 1);
    control.note_cost(20, 1.25);
  }
  for (const double seconds : {1.5, 0.8, 1.2}) {
    for (int i = 0; i < 200; ++i) control.note_cost(16, seconds);
    EXPECT_NEAR(control.relative_cost(16, 20), 1.25, 0.07) << seconds;
  }
  // Where the size itself takes longer, that is found out as well.
  for (int i = 0; i < 400; ++i) {
    control.note_cost(16, 1);
    control.note_cost(20, 1.6);
  }
  EXPECT_NEAR(control.relative_cost(16, 20), 1.6, 0.1);
}

// The first steps of a size have the recording of a graph in them; after that they run for a while, and then not at all.
TEST(DraftControl, FindsWhatStepsWithDraftsCostBesideThoseWithout) {
  DraftControl control({.most = 4});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i) control.note_cost(32, 1);
    for (int i = 0; i < 60; ++i) control.note_cost(64, round == 0 && i < 2 ? 9 : 2.7);
  }
  EXPECT_NEAR(control.relative_cost(32, 64), 2.7, 0.1);
  EXPECT_NEAR(control.relative_cost(32, 48), 1.85, 0.1) << "sizes between them as well";
}

TEST(DraftControl, FindsSoonWhatASeldomSizeCosts) {
  DraftControl control({.most = 4});
  const auto run = [&](int times, double seldom) {
    for (int i = 0; i < times; ++i) {
      for (int base = 0; base < 20; ++base) control.note_cost(32, 1);
      control.note_cost(64, seldom);
    }
  };
  run(1, 9);
  run(3, 1.3);
  EXPECT_NEAR(control.relative_cost(32, 64), 1.3, 0.05);
  run(4, 2.6);  // beside another program
  run(6, 1.3);
  EXPECT_NEAR(control.relative_cost(32, 64), 1.3, 0.08);
}

TEST(DraftControl, LeavesAloneWhatHardlyPays) {
  // Drafts that are always right, in steps of sixteen that take as much longer as they give more, or half of that.
  const auto verified = [](double cost) {
    DraftControl control({.most = 4});
    for (int tokens = 16; tokens <= 20; ++tokens) control.note_cost(tokens, 1 + cost * (tokens - 16) / 16);
    for (int i = 0; i < 400; ++i) note_right(control, 40, 4);
    control.note_step(16);
    const Guess guess{Speculation::Suffix, 40, 4};
    return control.choose({&guess, 1}).drafts;
  };
  EXPECT_EQ(verified(0.9), 0);
  EXPECT_EQ(verified(0.5), 4);
}

TEST(DraftControl, SaysWhatItExpectsOfItsChoice) {
  DraftControl control({.most = 2});
  for (int tokens = 1; tokens <= 3; ++tokens) control.note_cost(tokens, 1 + 0.1 * (tokens - 1));
  for (int i = 0; i < 400; ++i) note_right(control, 8, 4);
  const Guess guess{Speculation::Suffix, 8, 16};
  const DraftControl::Choice choice = control.choose({&guess, 1});
  EXPECT_EQ(choice.drafts, 2);
  EXPECT_NEAR(choice.expected, 2, 0.1);
  EXPECT_NEAR(choice.cost, 0.2, 0.01);
}

TEST(DraftControl, ChoosesTheProposerThatIsRightMoreOften) {
  DraftControl control({.most = 16});
  for (int tokens = 1; tokens <= 17; ++tokens) control.note_cost(tokens, 1 + 0.05 * tokens);
  for (int i = 0; i < 100; ++i) {
    control.note_verified(4, {Speculation::Suffix, 4, 1});
    control.note_verified(4, {Speculation::Ngram, 4, 4});
  }
  const std::vector<Guess> guesses{{Speculation::Suffix, 4, 16}, {Speculation::Ngram, 4, 16}};
  EXPECT_EQ(control.choose(guesses).guess, 1u);
}

RigOptions speculating(Speculation with, int most = 5) {
  RigOptions options;
  options.speculation = {.with = with, .control = {.most = most, .measured = false}};
  return options;
}

std::vector<request::Request> kinds_of_requests() {
  std::vector<Token> repeated;
  for (int i = 0; i < 4; ++i)
    for (const Token token : words(9, 3)) repeated.push_back(token);
  std::vector<request::Request> requests;
  const auto add = [&](int answer) -> request::SamplingParams& {
    requests.push_back(greedy_request(repeated, answer));
    return requests.back().sampling();
  };
  add(40);
  add(1);
  add(40).method = request::Sampling{.temperature = 1, .seed = 3};
  add(40).method = request::Sampling{.temperature = 0.4, .top_k = 5, .top_p = 0.9, .seed = 4};
  add(30).repetition_penalty = 1.2;
  add(30).logprobs = 3;
  add(30).min_tokens = 20;
  request::SamplingParams& several = add(30);
  several.n = 3;
  several.method = request::Sampling{.temperature = 0.7, .seed = 5};
  add(12).prompt_logprobs = 1;
  return requests;
}

void expect_same(const Answer& answer, const Answer& expected) {
  ASSERT_EQ(answer.choices.size(), expected.choices.size());
  EXPECT_EQ(answer.ends.at(0).reason, expected.ends.at(0).reason);
  for (size_t choice = 0; choice < expected.choices.size(); ++choice) {
    ASSERT_EQ(answer.tokens(choice), expected.tokens(choice));
    for (size_t i = 0; i < expected.choices[choice].size(); ++i)
      EXPECT_EQ(answer.choices[choice][i].logprob, expected.choices[choice][i].logprob);
  }
}

TEST(Speculation, ChangesNoByteAndSavesSteps) {
  const std::vector<request::Request> requests = kinds_of_requests();
  RigOptions plain;
  plain.end_tokens = {17};
  std::vector<Answer> expected;
  uint64_t steps = 0;
  for (const request::Request& request : requests) {
    Rig rig(plain);
    expected.push_back(rig.run(request));
    steps += rig.engine->metrics().steps.value();
  }
  for (const Speculation with : {Speculation::Ngram, Speculation::Suffix, Speculation::Auto}) {
    uint64_t fewer = 0, accepted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      RigOptions options = speculating(with);
      options.end_tokens = plain.end_tokens;
      Rig rig(options);
      expect_same(rig.run(requests[i]), expected[i]);
      fewer += rig.engine->metrics().steps.value();
      accepted += rig.engine->metrics().accepted_drafts.value();
      EXPECT_GE(rig.engine->metrics().drafted_tokens.value(), rig.engine->metrics().accepted_drafts.value());
    }
    EXPECT_GT(accepted, 5u);
    EXPECT_LT(fewer, steps);
  }
}

TEST(Speculation, ChangesNoByteInABatchThatIsShortOfBlocks) {
  const std::vector<request::Request> requests = kinds_of_requests();
  for (const int blocks : {256, 40}) {
    for (const sched::Preemption preemption : {sched::Preemption::Recompute, sched::Preemption::Swap}) {
      RigOptions options = speculating(Speculation::Suffix, 9);
      options.blocks = {blocks, 64, 0};
      options.scheduler.preemption = preemption;
      options.scheduler.max_step_tokens = 48;
      Rig rig(options);
      std::vector<size_t> answers;
      for (const request::Request& request : requests) answers.push_back(rig.submit(request));
      rig.finish();
      for (size_t i = 0; i < requests.size(); ++i) {
        Rig alone;
        expect_same(rig.answer(answers[i]), alone.run(requests[i]));
      }
    }
  }
}

// Where the device samples, it samples behind every draft.
TEST(Speculation, ChangesNoByteOnADeviceThatSamples) {
  std::vector<request::Request> requests = kinds_of_requests();
  requests.push_back(requests[0]);
  requests.back().sampling().frequency_penalty = 0.8;
  requests.back().sampling().method = request::Sampling{.temperature = 0.6, .seed = 9};
  requests.push_back(requests[0]);
  requests.back().sampling().bad_words = {{3, 4}};  // sampled on the host: nothing is guessed
  RigOptions plain;
  plain.ahead = true;
  plain.end_tokens = {17};
  Rig without(plain);
  std::vector<size_t> expected;
  for (const request::Request& request : requests) expected.push_back(without.submit(request));
  without.finish();
  for (const Speculation with :
       {Speculation::Ngram, Speculation::Suffix, Speculation::Lookahead, Speculation::Auto}) {
    RigOptions options = speculating(with);
    options.ahead = true;
    options.end_tokens = plain.end_tokens;
    Rig rig(options);
    std::vector<size_t> answers;
    for (const request::Request& request : requests) answers.push_back(rig.submit(request));
    rig.finish();
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}, request {}", name(with), i));
      expect_same(rig.answer(answers[i]), without.answer(expected[i]));
    }
    EXPECT_GT(rig.engine->metrics().accepted_drafts.value(), 2u) << name(with);
    EXPECT_GT(dynamic_cast<AheadBackend&>(*rig.backend).repeated_steps, 5) << name(with);
  }
}

// What waits for its drafts runs together with what does not, and once nobody guesses any more steps overlap again.
TEST(Speculation, RunsInTheStepsOfTheOthers) {
  RigOptions options = speculating(Speculation::Draft);
  options.draft = options.model;
  options.ahead = true;
  request::Request off = greedy_request(words(12, 5), 40);
  off.sampling().speculate = Speculation::Off;
  Rig alone(options);
  alone.run(off);
  Rig rig(options);
  rig.submit(greedy_request(words(9, 3), 20));
  rig.submit(off);
  rig.finish();
  EXPECT_GT(rig.engine->metrics().accepted_drafts.value(), 5u);
  EXPECT_LE(rig.engine->metrics().steps.value(), alone.engine->metrics().steps.value() + 2);
  EXPECT_GT(dynamic_cast<AheadBackend&>(*rig.backend).overlapped, 15);
}

// For measurements: drafts are right as often as is said, whatever the model says.
TEST(Speculation, CanBeRightAsOftenAsIsSaid) {
  for (const double share : {0.0, 0.6, 1.0}) {
    RigOptions options = speculating(Speculation::Lookahead, 1);
    options.speculation.forced_acceptance = share;
    Rig rig(options);
    for (uint32_t i = 0; i < 8; ++i) rig.submit(greedy_request(words(6, i), 100));
    rig.finish();
    const engine::Metrics& metrics = rig.engine->metrics();
    const auto drafted = static_cast<double>(metrics.drafted_tokens.value());
    EXPECT_GT(drafted, 300);
    EXPECT_NEAR(static_cast<double>(metrics.accepted_drafts.value()) / drafted, share, 0.1);
  }
}

}  // namespace
}  // namespace sluice::runtime::test
