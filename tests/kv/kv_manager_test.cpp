#include "kv/kv_manager.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kv/kv_fixture.h"

namespace sluice::kv {
namespace {

// Opens, computes and publishes a sequence of these tokens.
int run(KvManager& ledger, SeqId seq, const std::vector<Token>& list, std::string_view salt = {}) {
  ledger.open(seq, salt);
  const int cached = ledger.match(seq, list);
  const int size = static_cast<int>(list.size());
  EXPECT_TRUE(ledger.reserve(seq, {.begin = cached, .end = size, .total = size}));
  ledger.publish(seq, list);
  ledger.check();
  return cached;
}

TEST(KvManager, TakesBlocksAsPositionsCome) {
  KvManager ledger(one_group(3));
  ledger.open(kA);
  EXPECT_TRUE(ledger.reserve(kA, {.begin = 0, .end = 4, .total = 4}));
  EXPECT_EQ(ledger.table(kA, 0).size(), 1u);
  EXPECT_TRUE(ledger.reserve(kA, {.begin = 4, .end = 5, .total = 5}));
  EXPECT_EQ(ledger.table(kA, 0).size(), 2u);
  EXPECT_FALSE(ledger.reserve(kA, {.begin = 5, .end = 13, .total = 13}));
  EXPECT_EQ(ledger.table(kA, 0).size(), 2u) << "all or nothing";
  ledger.check();
  ledger.release(kA);
  EXPECT_EQ(ledger.usage(0).used, 0);
}

TEST(KvManager, FindsEqualPrefixesAtBlockGranularity) {
  KvManager ledger(one_group(16));
  EXPECT_EQ(run(ledger, kA, tokens(10)), 0);
  EXPECT_EQ(run(ledger, kB, tokens(10)), 8);
  EXPECT_EQ(ledger.table(kA, 0)[0], ledger.table(kB, 0)[0]);
  EXPECT_EQ(ledger.table(kA, 0)[1], ledger.table(kB, 0)[1]);
  EXPECT_NE(ledger.table(kA, 0)[2], ledger.table(kB, 0)[2]);
  ledger.release(kA);
  ledger.release(kB);
  EXPECT_EQ(ledger.usage(0).cached, 2);
  EXPECT_EQ(run(ledger, kC, tokens(8)), 4) << "the last token must run";
}

TEST(KvManager, KeepsSaltsApart) {
  KvManager ledger(one_group(16));
  run(ledger, kA, tokens(10), "one");
  EXPECT_EQ(run(ledger, kB, tokens(10), "two"), 0);
  EXPECT_EQ(run(ledger, kC, tokens(10), "one"), 8);
}

TEST(KvManager, EvictsWhatWasLetGoFirst) {
  KvManager ledger(one_group(4));
  run(ledger, kA, tokens(8, 100));
  ledger.release(kA);
  run(ledger, kB, tokens(8, 200));
  ledger.release(kB);
  EXPECT_EQ(ledger.usage(0).cached, 4);
  run(ledger, kC, tokens(4, 300));  // takes the last block of A, the oldest chain's tail
  ledger.release(kC);
  EXPECT_EQ(ledger.counters().evicted, 1u);
  EXPECT_EQ(run(ledger, kA, tokens(9, 100)), 4);
}

TEST(KvManager, CopiesSharedBlocksBeforeTheyAreWritten) {
  KvManager ledger(one_group(8));
  ledger.open(kA);
  ASSERT_TRUE(ledger.reserve(kA, {.begin = 0, .end = 6, .total = 6}));
  ledger.fork(kA, kB, 6);
  ledger.check();
  EXPECT_EQ(ledger.usage(0).used, 2);
  const BlockId shared = ledger.table(kA, 0)[1];
  ASSERT_TRUE(ledger.reserve(kB, {.begin = 6, .end = 7, .total = 7}));
  const std::vector<request::BlockMove> moves = ledger.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0],
            (request::BlockMove{
                0, {request::Tier::Device, shared}, {request::Tier::Device, ledger.table(kB, 0)[1]}}));
  ASSERT_TRUE(ledger.reserve(kA, {.begin = 6, .end = 7, .total = 7}));
  EXPECT_TRUE(ledger.take_moves().empty()) << "the last holder writes in place";
  EXPECT_EQ(ledger.table(kA, 0)[1], shared);
  ledger.check();
}

TEST(KvManager, WindowsGiveBlocksBack) {
  KvManagerOptions options = one_group(8);
  options.groups.push_back({.window = 6, .blocks = {4}});
  KvManager ledger(options);
  ledger.open(kA);
  for (int position = 0; position < 32; ++position) {
    ASSERT_TRUE(ledger.reserve(kA, {.begin = position, .end = position + 1, .total = position + 1}));
    ledger.check();
    const std::span<const BlockId> table = ledger.table(kA, 1);
    for (int p = std::max(0, position - 5); p <= position; ++p) {
      EXPECT_NE(table[static_cast<size_t>(p / 4)], request::kNoBlock)
          << "position " << position << " sees " << p;
    }
    EXPECT_LE(ledger.usage(1).used, ledger.peak_blocks(1, {.total = 32}));
  }
  EXPECT_EQ(ledger.usage(0).used, 8);
  EXPECT_EQ(ledger.usage(1).used, 2);
}

TEST(KvManager, MatchesNeedOnlyWhatTheWindowSees) {
  KvManagerOptions options = one_group(16);
  options.groups.push_back({.window = 4, .blocks = {16}});
  KvManager ledger(options);
  run(ledger, kA, tokens(16));
  ASSERT_TRUE(
      ledger.reserve(kA, {.begin = 16, .end = 17, .total = 17}));  // gives back all but the last block
  ledger.open(kB);
  EXPECT_EQ(ledger.match(kB, tokens(20)), 16);
  EXPECT_EQ(ledger.table(kB, 1)[2], request::kNoBlock);
  EXPECT_NE(ledger.table(kB, 1)[3], request::kNoBlock);
  ledger.check();
}

TEST(KvManager, PromisesCannotBeBroken) {
  KvManager ledger(one_group(8));
  ledger.open(kA);
  ASSERT_TRUE(ledger.reserve_capacity(std::span(&kA, 1), {.total = 20}));  // 5 blocks
  ledger.open(kB);
  EXPECT_FALSE(ledger.reserve(kB, {.begin = 0, .end = 16, .total = 16}));
  EXPECT_TRUE(ledger.reserve(kB, {.begin = 0, .end = 12, .total = 12}));
  ledger.check();
  EXPECT_TRUE(ledger.reserve(kA, {.begin = 0, .end = 20, .total = 20}));
  ledger.check();
  ledger.open(kC);
  EXPECT_FALSE(ledger.reserve_capacity(std::span(&kC, 1), {.total = 1}));
  ledger.release(kA);
  EXPECT_TRUE(ledger.reserve_capacity(std::span(&kC, 1), {.total = 20}));
}

TEST(KvManager, ForksLiveWithinTheFamilysPromise) {
  KvManager ledger(one_group(6));
  ledger.open(kA);
  ASSERT_TRUE(
      ledger.reserve_capacity(std::span(&kA, 1), {.shared = 9, .total = 16, .sequences = 2}));  // 2 + 2 * 2
  ASSERT_TRUE(ledger.reserve(kA, {.begin = 0, .end = 9, .total = 9}));
  ledger.fork(kA, kB, 9);
  EXPECT_TRUE(ledger.reserve(kA, {.begin = 9, .end = 16, .total = 16}));
  EXPECT_TRUE(ledger.reserve(kB, {.begin = 9, .end = 16, .total = 16}));
  ledger.check();
  ledger.release(kA);
  EXPECT_EQ(ledger.usage(0).promised, 6);
  ledger.release(kB);
  EXPECT_EQ(ledger.usage(0).promised, 0);
}

TEST(KvManager, SwapsFamiliesOutAndInWithTheirSharing) {
  KvManager ledger(one_group(4, 2, 2));
  ledger.open(kA);
  ASSERT_TRUE(ledger.reserve(kA, {.begin = 0, .end = 8, .total = 8}));
  ledger.fork(kA, kB, 8);
  ASSERT_TRUE(ledger.reserve(kA, {.begin = 8, .end = 9, .total = 9}));
  ASSERT_TRUE(ledger.reserve(kB, {.begin = 8, .end = 9, .total = 9}));
  const std::vector<SeqId> family{kA, kB};
  ASSERT_TRUE(ledger.swap_out(family));
  ledger.check();
  EXPECT_EQ(ledger.take_moves().size(), 4u) << "shared blocks move once";
  EXPECT_EQ(ledger.usage(0).used, 0);
  EXPECT_EQ(ledger.usage(0).host_used, 2);
  EXPECT_EQ(ledger.usage(0).disk_used, 2);
  EXPECT_FALSE(ledger.swap_in(family, 1)) << "no block to spare";
  ASSERT_TRUE(ledger.swap_in(family));
  ledger.check();
  EXPECT_EQ(ledger.take_moves().size(), 4u);
  EXPECT_EQ(ledger.table(kA, 0)[1], ledger.table(kB, 0)[1]);
  EXPECT_NE(ledger.table(kA, 0)[2], ledger.table(kB, 0)[2]);
  EXPECT_EQ(ledger.usage(0).host_used + ledger.usage(0).disk_used, 0);
}

TEST(KvManager, EvictedContentGoesDownAndComesBackUp) {
  KvManager ledger(one_group(2, 2, 2));
  for (Token first = 100; first <= 300; first += 100) {
    run(ledger, kA, tokens(8, first));
    ledger.release(kA);
  }
  EXPECT_EQ(ledger.counters().demoted, 6u);  // two to the host, then those on to the disk and two more down
  ledger.take_moves();
  ledger.open(kB);
  EXPECT_EQ(ledger.match(kB, tokens(9, 100)), 8) << "from the disk";
  EXPECT_EQ(ledger.counters().promoted, 2u);
  EXPECT_LE(ledger.counters().evicted, 1u) << "every tier was full";
  ledger.check();
}

TEST(KvManager, DistrustedContentIsNotFound) {
  KvManager ledger(one_group(16));
  run(ledger, kA, tokens(10));
  run(ledger, kB, tokens(12));
  ledger.invalidate(kB);
  ledger.release(kB);
  EXPECT_EQ(run(ledger, kC, tokens(12)), 0) << "what it had matched is doubtful too";
}

TEST(KvManager, SaysWhatIsBeingComputed) {
  KvManager ledger(one_group(16));
  ledger.open(kA);
  EXPECT_EQ(ledger.match(kA, tokens(10)), 0);
  EXPECT_FALSE(ledger.is_being_computed(kA));
  ledger.open(kB);
  EXPECT_EQ(ledger.match(kB, tokens(12)), 0);
  EXPECT_TRUE(ledger.is_being_computed(kB));
  ledger.release(kB);
  ASSERT_TRUE(ledger.reserve(kA, {.begin = 0, .end = 10, .total = 10}));
  ledger.publish(kA, tokens(10));
  ledger.open(kB);
  EXPECT_EQ(ledger.match(kB, tokens(12)), 8);
  EXPECT_FALSE(ledger.is_being_computed(kB));
}

TEST(KvManager, SharesEmbeddingsByTheirContent) {
  KvManager ledger(one_group(32));
  const auto run_with = [&](SeqId seq, uint8_t content, request::Positions positions = {}) {
    auto request = std::make_shared<request::Request>();
    request->spans = {{.begin = 6, .end = 10}};
    request->spans[0].content[0] = content;
    request->positions = std::move(positions);
    ledger.open(seq, {{}, 0, request});
    const int cached = ledger.match(seq, tokens(16));
    EXPECT_TRUE(ledger.reserve(seq, {.begin = cached, .end = 16, .total = 16}));
    ledger.publish(seq, tokens(16));
    ledger.release(seq);
    ledger.check();
    return cached;
  };
  EXPECT_EQ(run_with(kA, 1), 0);
  EXPECT_EQ(run_with(kB, 1), 12) << "the same picture";
  EXPECT_EQ(run_with(kB, 2), 4) << "the same placeholders: only what stands before them is shared";
  EXPECT_EQ(run_with(kC, 2), 12);
  EXPECT_EQ(run_with(kC, 2, {1, std::vector<int32_t>(16, 5)}), 0) << "at other positions";
  EXPECT_EQ(run(ledger, kA, tokens(16)), 4) << "plain text";
}

}  // namespace
}  // namespace sluice::kv
