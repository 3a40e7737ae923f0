// State slots: one state per sequence, checkpoints at block borders, shared, copied, moved and given back as blocks are.
#include <gtest/gtest.h>

#include <algorithm>

#include "request/block_tables.h"
#include "tests/kv/kv_fixture.h"

namespace sluice::kv {
namespace {

using request::StateSlots;

constexpr int kStates = 1;  // the group

KvManagerOptions with_states(int blocks, int slots, int host = 0) {
  KvManagerOptions options = one_group(blocks, host);
  options.groups.push_back({.holds = KvGroup::Holds::State, .blocks = {slots, host, 0}});
  return options;
}

bool run(KvManager& kv, SeqId seq, int begin, int end) {
  return kv.reserve(seq, {.begin = begin, .end = end, .total = end});
}

StateSlots slots(const KvManager& kv, SeqId seq, int begin, int end) {
  return StateSlots::of(kv.table(seq, kStates), begin, end, kv.options().block_size);
}

TEST(StateSlots, AreOnePerSequenceHoweverLongItGets) {
  KvManager kv(with_states(64, 8));
  kv.open(kA);
  int most = 0;
  for (int p = 0; p < 100; ++p) {
    ASSERT_TRUE(run(kv, kA, p, p + 1));
    kv.publish(kA, tokens(p));  // while the next one runs
    kv.check();
    most = std::max(most, kv.usage(kStates).used);
  }
  EXPECT_LE(most, 3);  // with the checkpoint that the next position starts from, and the one before
  kv.release(kA);
  EXPECT_EQ(kv.usage(kStates).used, 0);
}

TEST(StateSlots, HoldTheLastBorderAndTheEndOfAStep) {
  KvManager kv(with_states(64, 8));
  kv.open(kA);
  ASSERT_TRUE(run(kv, kA, 0, 30));
  const StateSlots first = slots(kv, kA, 0, 30);
  EXPECT_EQ(first.from, request::kNoBlock);
  ASSERT_EQ(first.saves.size(), 2u);
  EXPECT_EQ(first.saves[0].position, 28);
  EXPECT_EQ(first.saves[1].position, 30);
  EXPECT_EQ(kv.usage(kStates).used, 2);
  ASSERT_TRUE(run(kv, kA, 30, 43));  // goes on in place up to the border at 40
  const StateSlots second = slots(kv, kA, 30, 43);
  EXPECT_EQ(second.from, first.end());
  EXPECT_EQ(second.saves[0], (StateSlots::Save{40, first.end()}));
  EXPECT_NE(second.end(), first.end());
  kv.check();
}

TEST(StateSlots, AreReservedOnceHoweverOftenAStepIsPlanned) {
  KvManager kv(with_states(64, 8));
  kv.open(kA);
  ASSERT_TRUE(run(kv, kA, 0, 6));
  const BlockId state = slots(kv, kA, 0, 6).end();
  for (const int end : {30, 7, 13, 8, 30}) {
    ASSERT_TRUE(run(kv, kA, 6, end));
    kv.check();
    EXPECT_EQ(slots(kv, kA, 6, end).from, state) << end;
  }
  EXPECT_LE(kv.usage(kStates).used, 3);
}

TEST(StateSlots, APrefixMatchesWhereItsStateIsKept) {
  KvManager kv(with_states(64, 8));
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(30)), 0);
  ASSERT_TRUE(run(kv, kA, 0, 30));
  kv.publish(kA, tokens(30));
  const BlockId border = slots(kv, kA, 0, 30).saves[0].slot;  // at 28
  kv.release(kA);
  EXPECT_EQ(kv.usage(kStates).cached, 1);
  kv.open(kB);
  EXPECT_EQ(kv.match(kB, tokens(40)), 28);  // not 27 or 30: there the state is not kept
  ASSERT_TRUE(run(kv, kB, 28, 29));
  EXPECT_EQ(slots(kv, kB, 28, 29).from, border);
  kv.open(kC);
  EXPECT_EQ(kv.match(kC, tokens(20)), 0) << "KV of 16 tokens is there, a state is not";
  kv.check();
}

// Block borders whose state is kept, of `length` tokens.
std::vector<int> kept_states(KvManager& kv, int length) {
  std::vector<int> kept;
  for (int prompt = kv.options().block_size + 1; prompt <= length + 1; ++prompt) {
    kv.open(kC);
    const int found = kv.match(kC, tokens(prompt));
    kv.release(kC);
    if (found > 0 && (kept.empty() || kept.back() != found)) kept.push_back(found);
  }
  return kept;
}

TEST(StateSlots, HoldCheckpointsAtMessageEndsAndAtIntervals) {
  KvManagerOptions options = with_states(64, 40);
  options.checkpoint_interval = 40;
  options.message_ends = {tokens(30)[17], tokens(30)[29]};
  KvManager kv(options);
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(94)), 0);
  ASSERT_TRUE(run(kv, kA, 0, 94));
  kv.publish(kA, tokens(94));
  kv.check();
  kv.release(kA);
  // Before 18 and 30, at 40 and 80, and at the end of the prompt.
  EXPECT_EQ(kept_states(kv, 94), (std::vector{16, 28, 40, 80, 92}));
}

TEST(StateSlots, HoldACheckpointWhereAPromptPartsFromAnother) {
  KvManager kv(with_states(64, 40));
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(60)), 0);
  ASSERT_TRUE(run(kv, kA, 0, 60));
  kv.publish(kA, tokens(60));
  kv.release(kA);
  std::vector<Token> other = tokens(60);
  for (size_t i = 34; i < other.size(); ++i) ++other[i];
  kv.open(kB);
  EXPECT_EQ(kv.match(kB, other), 0) << "nobody knew that this is where prompts part";
  ASSERT_TRUE(run(kv, kB, 0, 60));
  kv.publish(kB, other);
  kv.release(kB);
  for (size_t i = 34; i < other.size(); ++i) ++other[i];
  kv.open(kC);
  EXPECT_EQ(kv.match(kC, other), 32) << "by now it is known";
  kv.check();
}

// The states of a long answer do not drive out those of other conversations.
TEST(StateSlots, AnAnswerLeavesOneCheckpoint) {
  KvManager kv(with_states(64, 40));
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(10)), 0);
  ASSERT_TRUE(run(kv, kA, 0, 10));
  for (int p = 10; p < 100; ++p) {
    ASSERT_TRUE(run(kv, kA, p, p + 1));
    kv.publish(kA, tokens(p));
  }
  kv.publish(kA, tokens(100));
  kv.check();
  kv.release(kA);
  EXPECT_LE(kv.usage(kStates).cached, 3);  // with the prompt's and the one before the last
  kv.open(kB);
  EXPECT_EQ(kv.match(kB, tokens(120)), 100);
}

TEST(StateSlots, TakeNothingForCheckpointsThatSequencesNeed) {
  KvManagerOptions options = with_states(64, 6);
  options.checkpoint_interval = 4;
  KvManager kv(options);
  kv.open(kA);
  kv.open(kB);
  EXPECT_EQ(kv.match(kA, tokens(60)), 0);
  ASSERT_TRUE(run(kv, kA, 0, 58));
  EXPECT_EQ(kv.usage(kStates).used, 2);
  EXPECT_TRUE(run(kv, kB, 0, 6));
  kv.check();
}

TEST(StateSlots, AreCopiedBeforeAForkWritesToThem) {
  KvManager kv(with_states(64, 8));
  kv.open(kA);
  ASSERT_TRUE(run(kv, kA, 0, 6));
  const BlockId state = slots(kv, kA, 0, 6).end();
  kv.fork(kA, kB, 6);
  kv.take_moves();
  ASSERT_TRUE(run(kv, kB, 6, 7));
  const StateSlots fork = slots(kv, kB, 6, 7);
  EXPECT_NE(fork.from, state);
  const std::vector<request::BlockMove> moves = kv.take_moves();
  ASSERT_EQ(moves.size(), 2u);  // of the KV block and of the state
  EXPECT_EQ(moves[1].group, kStates);
  EXPECT_EQ(moves[1].from.block, state);
  EXPECT_EQ(moves[1].to.block, fork.from);
  ASSERT_TRUE(run(kv, kA, 6, 7));
  EXPECT_EQ(slots(kv, kA, 6, 7).from, state);
  EXPECT_TRUE(kv.take_moves().empty());
  kv.check();
}

TEST(StateSlots, AreMovedByASwap) {
  KvManager kv(with_states(16, 4, 16));
  kv.open(kA);
  ASSERT_TRUE(run(kv, kA, 0, 6));
  ASSERT_TRUE(kv.swap_out(std::vector{kA}));
  EXPECT_EQ(kv.usage(kStates).used, 0);
  EXPECT_EQ(kv.usage(kStates).host_used, 2);
  kv.check();
  ASSERT_TRUE(kv.swap_in(std::vector{kA}));
  EXPECT_EQ(kv.usage(kStates).host_used, 0);
  ASSERT_TRUE(run(kv, kA, 6, 7));
  EXPECT_NE(slots(kv, kA, 6, 7).from, request::kNoBlock);
  kv.check();
}

// A step of `drafts` behind the known tokens [begin, known).
bool verify(KvManager& kv, SeqId seq, int begin, int known, int drafts) {
  const int end = known + drafts;
  return kv.reserve(seq, {.begin = begin, .end = end, .total = end, .drafts = drafts});
}

StateSlots slots_of_drafts(const KvManager& kv, SeqId seq, int begin, int known, int drafts) {
  return StateSlots::of(kv.table(seq, kStates), begin, known + drafts, kv.options().block_size, drafts);
}

TEST(StateSlots, HoldTheStateBehindEachDraftUntilItIsSettled) {
  for (int accepted = 0; accepted <= 5; ++accepted) {  // over the borders at 8 and 12, in blocks of 4
    KvManager kv(with_states(64, 24));
    kv.open(kA);
    ASSERT_TRUE(run(kv, kA, 0, 6));
    const BlockId start = slots(kv, kA, 0, 6).end();
    ASSERT_TRUE(verify(kv, kA, 6, 7, 5));
    kv.check();
    const StateSlots verified = slots_of_drafts(kv, kA, 6, 7, 5);
    EXPECT_EQ(verified.from, start);
    ASSERT_EQ(verified.saves.size(), 6u);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(verified.saves[static_cast<size_t>(i)].position, 7 + i);
    kv.publish(kA, tokens(7));
    const int end = 7 + accepted;
    kv.truncate(kA, end);
    kv.check();
    kv.publish(kA, tokens(end));
    kv.check();
    const int used[] = {2, 2, 3, 3, 3, 3};  // the border at 4, that at 8 where it is passed, and the end
    EXPECT_EQ(kv.usage(kStates).used, used[accepted]) << end;
    EXPECT_EQ(kv.table(kA, kStates).back(), verified.saves[static_cast<size_t>(accepted)].slot) << end;
    kv.open(kB);
    EXPECT_EQ(kv.match(kB, tokens(20)), end / 4 * 4) << "the checkpoint at a border within accepted drafts";
    if (end >= 8) {
      ASSERT_TRUE(run(kv, kB, end / 4 * 4, 20));
      EXPECT_EQ(slots(kv, kB, end / 4 * 4, 20).from,
                verified.saves[static_cast<size_t>(end / 4 * 4 - 7)].slot);
    }
    ASSERT_TRUE(run(kv, kA, end, end + 1));
    EXPECT_EQ(slots(kv, kA, end, end + 1).from, verified.saves[static_cast<size_t>(accepted)].slot) << end;
    kv.check();
  }
}

TEST(StateSlots, BehindDraftsTakeNothingThatSequencesNeed) {
  KvManager kv(with_states(64, 12));
  kv.open(kA);
  kv.open(kB);
  ASSERT_TRUE(run(kv, kA, 0, 6));
  EXPECT_EQ(kv.most_drafts(), 12 - 2 - 2 * 2);
  EXPECT_FALSE(verify(kv, kA, 6, 7, 11));
  kv.check();
  ASSERT_TRUE(verify(kv, kA, 6, 7, 6));
  EXPECT_EQ(kv.most_drafts(), 0);
  EXPECT_TRUE(run(kv, kB, 0, 6));
  kv.check();
  kv.truncate(kA, 9);
  kv.check();
  KvManager plain(one_group(4));
  EXPECT_GT(plain.most_drafts(), 1000);
}

// What is promised to a sequence is not used up by its drafts, and its drafts take nothing of what others were promised.
TEST(StateSlots, BehindDraftsAreNotPromised) {
  KvManager kv(with_states(64, 10));
  for (const SeqId seq : {kA, kB}) {
    kv.open(seq);
    ASSERT_TRUE(kv.reserve_capacity(std::span(&seq, 1), {.total = 60, .chunk = 20}));
  }
  EXPECT_FALSE(verify(kv, kA, 0, 20, 3)) << "8 of 10 are promised";
  ASSERT_TRUE(verify(kv, kA, 0, 20, 2));
  for (int end = 22; end < 50; end += 3) {
    kv.check();
    kv.truncate(kA, end);
    kv.check();
    kv.publish(kA, tokens(end));
    ASSERT_TRUE(verify(kv, kA, end, end + 1, 2));
  }
  ASSERT_TRUE(run(kv, kB, 0, 20));
  ASSERT_TRUE(run(kv, kB, 20, 40));
  kv.check();
  kv.release(kA);
  kv.release(kB);
  EXPECT_EQ(kv.usage(kStates).used + kv.usage(kStates).promised, 0);
}

TEST(StateSlots, BehindDraftsAreSettledWhileSwappedOut) {
  KvManager kv(with_states(32, 12, 32));
  kv.open(kA);
  ASSERT_TRUE(verify(kv, kA, 0, 6, 4));
  ASSERT_TRUE(kv.swap_out(std::vector{kA}));
  EXPECT_EQ(kv.usage(kStates).host_used, 2 + 4);
  kv.truncate(kA, 9);
  kv.check();
  EXPECT_EQ(kv.usage(kStates).host_used, 3);  // at 4, 8 and 9
  ASSERT_TRUE(kv.swap_in(std::vector{kA}));
  kv.publish(kA, tokens(9));
  ASSERT_TRUE(run(kv, kA, 9, 10));
  EXPECT_NE(slots(kv, kA, 9, 10).from, request::kNoBlock);
  kv.check();
}

TEST(StateSlots, BoundHowManySequencesRun) {
  KvManager kv(with_states(64, 2));
  kv.open(kA);
  kv.open(kB);
  kv.open(kC);
  EXPECT_TRUE(run(kv, kA, 0, 3));
  EXPECT_TRUE(run(kv, kB, 0, 3));
  EXPECT_FALSE(run(kv, kC, 0, 3));
  EXPECT_EQ(kv.table(kC, 0).size(), 0u) << "all or nothing";
  kv.release(kA);
  EXPECT_TRUE(run(kv, kC, 0, 3));
  EXPECT_FALSE(kv.could_ever_hold({.total = 100, .sequences = 1, .chunk = 16}));
  kv.check();
}

}  // namespace
}  // namespace sluice::kv
