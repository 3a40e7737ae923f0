// Proposers that learn from more than the sequence itself: earlier answers, the model's opinion of wrong drafts.
#include <gtest/gtest.h>

#include <random>

#include "rig.h"
#include "runtime/speculation/answer_pool.h"
#include "runtime/speculation/proposer.h"

namespace sluice::runtime::test {
namespace {

using Tokens = std::vector<Token>;

Tokens next_of(Proposer& proposer, const Tokens& tokens, int most) {
  Tokens drafts;
  proposer.append(tokens);
  proposer.propose(most, drafts);
  return drafts;
}

// The longest end of `text` that occurs in `in`.
int longest_end_in(const Tokens& text, const Tokens& in) {
  for (size_t length = text.size(); length > 0; --length)
    if (std::search(in.begin(), in.end(), text.end() - static_cast<long>(length), text.end()) != in.end())
      return static_cast<int>(length);
  return 0;
}

TEST(SuffixAutomaton, FollowsAnotherTextWhileItGrows) {
  std::mt19937 random(7);
  for (const unsigned alphabet : {2u, 3u, 12u}) {
    const auto token = [&] { return static_cast<Token>(random() % alphabet); };
    SuffixAutomaton automaton;
    SuffixAutomaton::Cursor cursor;
    Tokens known, text;
    for (int i = 0; i < 300; ++i) {
      if (random() % 2 == 0) {
        known.push_back(token());
        automaton.append(known.back());
        if (longest_end_in(text, known) != cursor.length) cursor = {}, text.clear();
        continue;
      }
      text.push_back(token());
      automaton.advance(cursor, text.back());
      ASSERT_EQ(cursor.length, longest_end_in(text, known)) << "alphabet " << alphabet << ", token " << i;
      if (cursor.length == 0) continue;
      const size_t end = automaton.end_of(cursor);
      ASSERT_LE(end, known.size());
      EXPECT_TRUE(std::equal(text.end() - cursor.length, text.end(),
                             known.begin() + static_cast<long>(end) - cursor.length));
    }
  }
}

TEST(AnswerPool, IsGuessedFromByTheSameSaltAlone) {
  AnswerPool pool;
  pool.add(pool.of("a"), Tokens{11, 12, 13, 14, 15});
  EXPECT_EQ(next_of(*make_suffix_proposer(pool.of("a")), {1, 2, 12, 13}, 4), (Tokens{14, 15}));
  EXPECT_TRUE(next_of(*make_suffix_proposer(pool.of("b")), {1, 2, 12, 13}, 4).empty());
  EXPECT_TRUE(next_of(*make_suffix_proposer(), {1, 2, 12, 13}, 4).empty());
}

TEST(AnswerPool, GivesWayToALongerMatchInTheSequenceItself) {
  AnswerPool pool;
  pool.add(pool.of(""), Tokens{2, 3, 50});
  EXPECT_EQ(next_of(*make_suffix_proposer(pool.of("")), {1, 2, 3, 60, 1, 2, 3}, 1), (Tokens{60}));
}

TEST(AnswerPool, ForgetsTheOldestAndStaysUsable) {
  AnswerPool pool;
  const std::unique_ptr<Proposer> waiting = make_suffix_proposer(pool.of(""));
  EXPECT_TRUE(next_of(*waiting, {7}, 1).empty());
  for (Token i = 0; i < 40; ++i) {
    Tokens answer;
    for (Token j = 0; j < 4000; ++j) answer.push_back(1000 + i * 4000 + j);
    pool.add(pool.of(""), answer);
  }
  EXPECT_LE(pool.of("")->automaton().tokens().size(), AnswerPool::kTokens);
  EXPECT_TRUE(next_of(*make_suffix_proposer(pool.of("")), {1000, 1001}, 2).empty()) << "the first is gone";
  const Token late = 1000 + 39 * 4000;
  EXPECT_EQ(next_of(*waiting, {late, late + 1}, 2), (Tokens{late + 2, late + 3}));
  for (int i = 0; i < 200; ++i) pool.add(pool.of("salt " + std::to_string(i)), Tokens(2000, 5));
  EXPECT_LT(pool.salts(), 80u);
}

TEST(Lookahead, GuessesWhatTheModelSaidBehindAWrongDraft) {
  const std::unique_ptr<Proposer> proposer = make_lookahead_proposer();
  EXPECT_EQ(next_of(*proposer, {1, 2, 3, 1}, 2), (Tokens{2, 3})) << "pairs of the text";
  proposer->append(Tokens{9});
  const std::vector<Proposer::Seen> seen{{2, 20}, {3, 21}};
  proposer->observe(seen);
  Tokens drafts;
  EXPECT_GT(proposer->propose(8, drafts), 0);
  EXPECT_EQ(drafts, (Tokens{20, 21}));
  EXPECT_EQ(next_of(*proposer, {77}, 1), (Tokens{77})) << "a wrong guess shows what comes behind it";
}

// Who asked before decides what is guessed, never what is answered.
TEST(AnswerPool, SavesStepsOfTheSameQuestionAgain) {
  RigOptions options;
  options.prefix_cache = false;
  options.speculation = {.with = Speculation::Suffix, .control = {.most = 8, .measured = false}};
  Rig rig(options);
  const request::Request question = greedy_request(words(12, 9), 40);
  const auto steps = [&](const request::Request& request) {
    const uint64_t before = rig.engine->metrics().steps.value();
    const Answer answer = rig.run(request);
    return std::pair(rig.engine->metrics().steps.value() - before, answer.tokens());
  };
  const auto [first, tokens] = steps(question);
  request::Request salted = question;
  salted.cache_salt = "another";
  EXPECT_EQ(steps(salted), std::pair(first, tokens)) << "another salt has its own answers";
  const auto [again, same] = steps(question);
  EXPECT_EQ(same, tokens);
  EXPECT_LT(again * 3, first);
}

}  // namespace
}  // namespace sluice::runtime::test
