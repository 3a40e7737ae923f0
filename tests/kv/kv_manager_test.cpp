#include "kv/kv_manager.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kv/kv_fixture.h"

namespace sluice::kv {
namespace {

// Opens, computes and publishes a sequence of these tokens.
int run(KvManager& kv_manager, SeqId seq, const std::vector<Token>& list, std::string_view salt = {}) {
  kv_manager.open(seq, salt);
  const int cached = kv_manager.match(seq, list);
  const int size = static_cast<int>(list.size());
  EXPECT_TRUE(kv_manager.reserve(seq, {.begin = cached, .end = size, .total = size}));
  kv_manager.publish(seq, list);
  kv_manager.check();
  return cached;
}

TEST(KvManager, TakesBlocksAsPositionsCome) {
  KvManager kv_manager(one_group(3));
  kv_manager.open(kA);
  EXPECT_TRUE(kv_manager.reserve(kA, {.begin = 0, .end = 4, .total = 4}));
  EXPECT_EQ(kv_manager.table(kA, 0).size(), 1u);
  EXPECT_TRUE(kv_manager.reserve(kA, {.begin = 4, .end = 5, .total = 5}));
  EXPECT_EQ(kv_manager.table(kA, 0).size(), 2u);
  EXPECT_FALSE(kv_manager.reserve(kA, {.begin = 5, .end = 13, .total = 13}));
  EXPECT_EQ(kv_manager.table(kA, 0).size(), 2u) << "all or nothing";
  kv_manager.check();
  kv_manager.release(kA);
  EXPECT_EQ(kv_manager.usage(0).used, 0);
}

TEST(KvManager, FindsEqualPrefixesAtBlockGranularity) {
  KvManager kv_manager(one_group(16));
  EXPECT_EQ(run(kv_manager, kA, tokens(10)), 0);
  EXPECT_EQ(run(kv_manager, kB, tokens(10)), 8);
  EXPECT_EQ(kv_manager.table(kA, 0)[0], kv_manager.table(kB, 0)[0]);
  EXPECT_EQ(kv_manager.table(kA, 0)[1], kv_manager.table(kB, 0)[1]);
  EXPECT_NE(kv_manager.table(kA, 0)[2], kv_manager.table(kB, 0)[2]);
  kv_manager.release(kA);
  kv_manager.release(kB);
  EXPECT_EQ(kv_manager.usage(0).cached, 2);
  EXPECT_EQ(run(kv_manager, kC, tokens(8)), 4) << "the last token must run";
}

TEST(KvManager, KeepsSaltsApart) {
  KvManager kv_manager(one_group(16));
  run(kv_manager, kA, tokens(10), "one");
  EXPECT_EQ(run(kv_manager, kB, tokens(10), "two"), 0);
  EXPECT_EQ(run(kv_manager, kC, tokens(10), "one"), 8);
}

TEST(KvManager, EvictsWhatWasLetGoFirst) {
  KvManager kv_manager(one_group(4));
  run(kv_manager, kA, tokens(8, 100));
  kv_manager.release(kA);
  run(kv_manager, kB, tokens(8, 200));
  kv_manager.release(kB);
  EXPECT_EQ(kv_manager.usage(0).cached, 4);
  run(kv_manager, kC, tokens(4, 300));  // takes the last block of A, the oldest chain's tail
  kv_manager.release(kC);
  EXPECT_EQ(kv_manager.counters().evicted, 1u);
  EXPECT_EQ(run(kv_manager, kA, tokens(9, 100)), 4);
}

TEST(KvManager, CopiesSharedBlocksBeforeTheyAreWritten) {
  KvManager kv_manager(one_group(8));
  kv_manager.open(kA);
  ASSERT_TRUE(kv_manager.reserve(kA, {.begin = 0, .end = 6, .total = 6}));
  kv_manager.fork(kA, kB, 6);
  kv_manager.check();
  EXPECT_EQ(kv_manager.usage(0).used, 2);
  const BlockId shared = kv_manager.table(kA, 0)[1];
  ASSERT_TRUE(kv_manager.reserve(kB, {.begin = 6, .end = 7, .total = 7}));
  const std::vector<request::BlockMove> moves = kv_manager.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0],
            (request::BlockMove{
                0, {request::Tier::Device, shared}, {request::Tier::Device, kv_manager.table(kB, 0)[1]}}));
  ASSERT_TRUE(kv_manager.reserve(kA, {.begin = 6, .end = 7, .total = 7}));
  EXPECT_TRUE(kv_manager.take_moves().empty()) << "the last holder writes in place";
  EXPECT_EQ(kv_manager.table(kA, 0)[1], shared);
  kv_manager.check();
}

TEST(KvManager, WindowsGiveBlocksBack) {
  KvManagerOptions options = one_group(8);
  options.groups.push_back({.window = 6, .blocks = {4}});
  KvManager kv_manager(options);
  kv_manager.open(kA);
  for (int position = 0; position < 32; ++position) {
    ASSERT_TRUE(kv_manager.reserve(kA, {.begin = position, .end = position + 1, .total = position + 1}));
    kv_manager.check();
    const std::span<const BlockId> table = kv_manager.table(kA, 1);
    for (int p = std::max(0, position - 5); p <= position; ++p) {
      EXPECT_NE(table[static_cast<size_t>(p / 4)], request::kNoBlock)
          << "position " << position << " sees " << p;
    }
    EXPECT_LE(kv_manager.usage(1).used, kv_manager.peak_blocks(1, {.total = 32}));
  }
  EXPECT_EQ(kv_manager.usage(0).used, 8);
  EXPECT_EQ(kv_manager.usage(1).used, 2);
}

TEST(KvManager, MatchesNeedOnlyWhatTheWindowSees) {
  KvManagerOptions options = one_group(16);
  options.groups.push_back({.window = 4, .blocks = {16}});
  KvManager kv_manager(options);
  run(kv_manager, kA, tokens(16));
  ASSERT_TRUE(
      kv_manager.reserve(kA, {.begin = 16, .end = 17, .total = 17}));  // gives back all but the last block
  kv_manager.open(kB);
  EXPECT_EQ(kv_manager.match(kB, tokens(20)), 16);
  EXPECT_EQ(kv_manager.table(kB, 1)[2], request::kNoBlock);
  EXPECT_NE(kv_manager.table(kB, 1)[3], request::kNoBlock);
  kv_manager.check();
}

TEST(KvManager, PromisesCannotBeBroken) {
  KvManager kv_manager(one_group(8));
  kv_manager.open(kA);
  ASSERT_TRUE(kv_manager.reserve_capacity(std::span(&kA, 1), {.total = 20}));  // 5 blocks
  kv_manager.open(kB);
  EXPECT_FALSE(kv_manager.reserve(kB, {.begin = 0, .end = 16, .total = 16}));
  EXPECT_TRUE(kv_manager.reserve(kB, {.begin = 0, .end = 12, .total = 12}));
  kv_manager.check();
  EXPECT_TRUE(kv_manager.reserve(kA, {.begin = 0, .end = 20, .total = 20}));
  kv_manager.check();
  kv_manager.open(kC);
  EXPECT_FALSE(kv_manager.reserve_capacity(std::span(&kC, 1), {.total = 1}));
  kv_manager.release(kA);
  EXPECT_TRUE(kv_manager.reserve_capacity(std::span(&kC, 1), {.total = 20}));
}

TEST(KvManager, ForksLiveWithinTheFamilysPromise) {
  KvManager kv_manager(one_group(6));
  kv_manager.open(kA);
  ASSERT_TRUE(kv_manager.reserve_capacity(std::span(&kA, 1),
                                          {.shared = 9, .total = 16, .sequences = 2}));  // 2 + 2 * 2
  ASSERT_TRUE(kv_manager.reserve(kA, {.begin = 0, .end = 9, .total = 9}));
  kv_manager.fork(kA, kB, 9);
  EXPECT_TRUE(kv_manager.reserve(kA, {.begin = 9, .end = 16, .total = 16}));
  EXPECT_TRUE(kv_manager.reserve(kB, {.begin = 9, .end = 16, .total = 16}));
  kv_manager.check();
  kv_manager.release(kA);
  EXPECT_EQ(kv_manager.usage(0).promised, 6);
  kv_manager.release(kB);
  EXPECT_EQ(kv_manager.usage(0).promised, 0);
}

TEST(KvManager, SwapsFamiliesOutAndInWithTheirSharing) {
  KvManager kv_manager(one_group(4, 2, 2));
  kv_manager.open(kA);
  ASSERT_TRUE(kv_manager.reserve(kA, {.begin = 0, .end = 8, .total = 8}));
  kv_manager.fork(kA, kB, 8);
  ASSERT_TRUE(kv_manager.reserve(kA, {.begin = 8, .end = 9, .total = 9}));
  ASSERT_TRUE(kv_manager.reserve(kB, {.begin = 8, .end = 9, .total = 9}));
  const std::vector<SeqId> family{kA, kB};
  ASSERT_TRUE(kv_manager.swap_out(family));
  kv_manager.check();
  EXPECT_EQ(kv_manager.take_moves().size(), 4u) << "shared blocks move once";
  EXPECT_EQ(kv_manager.usage(0).used, 0);
  EXPECT_EQ(kv_manager.usage(0).host_used, 2);
  EXPECT_EQ(kv_manager.usage(0).disk_used, 2);
  EXPECT_FALSE(kv_manager.swap_in(family, 1)) << "no block to spare";
  ASSERT_TRUE(kv_manager.swap_in(family));
  kv_manager.check();
  EXPECT_EQ(kv_manager.take_moves().size(), 4u);
  EXPECT_EQ(kv_manager.table(kA, 0)[1], kv_manager.table(kB, 0)[1]);
  EXPECT_NE(kv_manager.table(kA, 0)[2], kv_manager.table(kB, 0)[2]);
  EXPECT_EQ(kv_manager.usage(0).host_used + kv_manager.usage(0).disk_used, 0);
}

TEST(KvManager, EvictedContentGoesDownAndComesBackUp) {
  KvManager kv_manager(one_group(2, 2, 2));
  for (Token first = 100; first <= 300; first += 100) {
    run(kv_manager, kA, tokens(8, first));
    kv_manager.release(kA);
  }
  EXPECT_EQ(kv_manager.counters().demoted,
            6u);  // two to the host, then those on to the disk and two more down
  kv_manager.take_moves();
  kv_manager.open(kB);
  EXPECT_EQ(kv_manager.match(kB, tokens(9, 100)), 8) << "from the disk";
  EXPECT_EQ(kv_manager.counters().promoted, 2u);
  EXPECT_LE(kv_manager.counters().evicted, 1u) << "every tier was full";
  kv_manager.check();
}

TEST(KvManager, DistrustedContentIsNotFound) {
  KvManager kv_manager(one_group(16));
  run(kv_manager, kA, tokens(10));
  run(kv_manager, kB, tokens(12));
  kv_manager.invalidate(kB);
  kv_manager.release(kB);
  EXPECT_EQ(run(kv_manager, kC, tokens(12)), 0) << "what it had matched is doubtful too";
}

TEST(KvManager, SaysWhatIsBeingComputed) {
  KvManager kv_manager(one_group(16));
  kv_manager.open(kA);
  EXPECT_EQ(kv_manager.match(kA, tokens(10)), 0);
  EXPECT_FALSE(kv_manager.is_being_computed(kA));
  kv_manager.open(kB);
  EXPECT_EQ(kv_manager.match(kB, tokens(12)), 0);
  EXPECT_TRUE(kv_manager.is_being_computed(kB));
  kv_manager.release(kB);
  ASSERT_TRUE(kv_manager.reserve(kA, {.begin = 0, .end = 10, .total = 10}));
  kv_manager.publish(kA, tokens(10));
  kv_manager.open(kB);
  EXPECT_EQ(kv_manager.match(kB, tokens(12)), 8);
  EXPECT_FALSE(kv_manager.is_being_computed(kB));
}

TEST(KvManager, SharesEmbeddingsByTheirContent) {
  KvManager kv_manager(one_group(32));
  const auto run_with = [&](SeqId seq, uint8_t content, request::Positions positions = {}) {
    auto request = std::make_shared<request::Request>();
    request->spans = {{.begin = 6, .end = 10}};
    request->spans[0].content[0] = content;
    request->positions = std::move(positions);
    kv_manager.open(seq, {{}, 0, request});
    const int cached = kv_manager.match(seq, tokens(16));
    EXPECT_TRUE(kv_manager.reserve(seq, {.begin = cached, .end = 16, .total = 16}));
    kv_manager.publish(seq, tokens(16));
    kv_manager.release(seq);
    kv_manager.check();
    return cached;
  };
  EXPECT_EQ(run_with(kA, 1), 0);
  EXPECT_EQ(run_with(kB, 1), 12) << "the same picture";
  EXPECT_EQ(run_with(kB, 2), 4) << "the same placeholders: only what stands before them is shared";
  EXPECT_EQ(run_with(kC, 2), 12);
  EXPECT_EQ(run_with(kC, 2, {1, std::vector<int32_t>(16, 5)}), 0) << "at other positions";
  EXPECT_EQ(run(kv_manager, kA, tokens(16)), 4) << "plain text";
}

// -- blocks that another process computed

TEST(KvImportTest, ImportedBlocksAreMatchedAndEvictTheOldest) {
  KvManager kv(one_group(4, 1));
  const std::vector<PrefixKey> keys = prefix_keys(root_key("test", ""), tokens(13), 4);
  ASSERT_EQ(keys.size(), 3u);
  for (const PrefixKey& key : keys) EXPECT_TRUE(kv.import(0, key).has_value());
  EXPECT_FALSE(kv.import(0, keys[0]).has_value()) << "it is there already";
  kv.open(kA);
  EXPECT_EQ(kv.match(kA, tokens(13)), 12);
  EXPECT_TRUE(kv.reserve(kA, {.begin = 12, .end = 13, .total = 13}));
  EXPECT_TRUE(kv.take_moves().empty());
  // All four are held.
  const std::vector<PrefixKey> others = prefix_keys(root_key("test", ""), tokens(9, 500), 4);
  EXPECT_FALSE(kv.import(0, others[0]).has_value());
  kv.release(kA);
  EXPECT_TRUE(kv.import(0, others[0]).has_value());
  EXPECT_TRUE(kv.import(0, others[1]).has_value());
  EXPECT_EQ(kv.take_moves().size(), 1u) << "what is evicted goes down a tier before it is written over";
  EXPECT_EQ(kv.counters().imported, 5u);
  kv.check();
}

}  // namespace
}  // namespace sluice::kv
