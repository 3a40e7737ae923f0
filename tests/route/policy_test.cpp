#include "route/policy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "kv/prefix_key.h"
#include "route/fair_queue.h"
#include "route/prompt_reader.h"
#include "route/response_tracker.h"

namespace sluice::route {
namespace {

std::vector<ReplicaState> healthy(size_t count) {
  std::vector<ReplicaState> out(count);
  for (ReplicaState& replica : out) {
    replica.healthy = true;
    replica.block_size = 16;
  }
  return out;
}

const PromptBlocks kPrompt{{1, 2, 3, 4}, 70};

TEST(Policy, GoesWhereMostOfThePromptIs) {
  std::vector<ReplicaState> replicas = healthy(3);
  replicas[1].keys = {1, 2};
  replicas[2].keys = {1, 2, 3};
  Choice choice = choose(replicas, kPrompt, {}, Clock::now());
  EXPECT_EQ(choice.replica, &replicas[2]);
  EXPECT_EQ(choice.cached, 48);
  replicas[2].keys = {2, 3, 4};  // a beginning without its first block is of no use
  EXPECT_EQ(choose(replicas, kPrompt, {}, Clock::now()).replica, &replicas[1]);
  const ReplicaState* tried[] = {&replicas[1]};
  EXPECT_NE(choose(replicas, kPrompt, tried, Clock::now()).replica, &replicas[1]);
  replicas[1].draining = true;
  EXPECT_NE(choose(replicas, kPrompt, {}, Clock::now()).replica, &replicas[1]);
  for (ReplicaState& replica : replicas) replica.healthy = false;
  EXPECT_EQ(choose(replicas, kPrompt, {}, Clock::now()).replica, nullptr);
}

TEST(Policy, ServersThatPrefillForOthersComeLastAndArePaired) {
  std::vector<ReplicaState> replicas = healthy(4);
  replicas[0].role = replicas[1].role = "prefill";
  replicas[2].role = replicas[3].role = "decode";
  replicas[0].keys = replicas[1].keys = {1, 2, 3, 4};
  replicas[3].keys = {1};
  EXPECT_EQ(choose(replicas, kPrompt, {}, Clock::now()).replica, &replicas[3]);
  replicas[0].prefill_tokens = 500;
  EXPECT_EQ(choose_prefill(replicas, kPrompt, Clock::now()).replica, &replicas[1]);
  replicas[2].healthy = replicas[3].healthy = false;
  EXPECT_EQ(choose(replicas, kPrompt, {}, Clock::now()).replica, &replicas[1]);
  replicas[0].healthy = replicas[1].healthy = false;
  EXPECT_EQ(choose_prefill(replicas, kPrompt, Clock::now()).replica, nullptr);
}

TEST(Policy, WeighsWorkAgainstPrefixesAndSpreadsPopularOnes) {
  std::vector<ReplicaState> replicas = healthy(4);
  replicas[0].keys = {1, 2, 3, 4};
  replicas[0].prefill_tokens = 1000;
  EXPECT_NE(choose(replicas, kPrompt, {}, Clock::now()).replica, &replicas[0]);
  replicas[0].prefill_tokens = 0;
  // Everybody asks for the same prefix, which costs more to compute than any queue: no replica has far more than others.
  const PromptBlocks hot{{1, 2, 3, 4}, 100'000};
  for (int i = 0; i < 100; ++i) {
    const Choice choice = choose(replicas, hot, {}, Clock::now());
    ASSERT_NE(choice.replica, nullptr);
    ++choice.replica->running;
    expect(*choice.replica, hot, Clock::now());
  }
  for (const ReplicaState& replica : replicas) {
    EXPECT_GE(replica.running, 15);
    EXPECT_LE(replica.running, 34);
  }
}

// A conversation is not torn from its blocks for a queue that is shorter elsewhere.
TEST(Policy, APrefixIsWorthAWait) {
  std::vector<ReplicaState> replicas = healthy(2);
  replicas[0].keys = {1, 2, 3, 4};
  replicas[0].prefill_tokens = 100;
  EXPECT_EQ(choose(replicas, kPrompt, {}, Clock::now()).replica, &replicas[0]);
}

// One at a time, so that no queue ever shows who has more to do.
TEST(Policy, NobodyGetsFarMoreThanHisShareOfThePopular) {
  std::vector<ReplicaState> replicas = healthy(4);
  const PromptBlocks hot{{1, 2, 3, 4}, 1000};
  TimePoint now = Clock::now();
  for (int i = 0; i < 200; ++i, now += std::chrono::milliseconds(100)) {
    const Choice choice = choose(replicas, hot, {}, now);
    ASSERT_NE(choice.replica, nullptr);
    count_request(*choice.replica, now);
    choice.replica->keys = {1, 2, 3, 4};
  }
  for (const ReplicaState& replica : replicas) EXPECT_LE(replica.requests, 60u) << "1.2 times 50";
}

// To move a conversation costs its history; to start one elsewhere costs nothing where others have the prefix, too.
TEST(Policy, ConversationsStayWhereNewOnesDoNotJoin) {
  std::vector<ReplicaState> replicas = healthy(4);
  const TimePoint now = Clock::now();
  for (size_t i = 0; i < 4; ++i) {
    replicas[i].keys = {1, 2};
    for (int count = 0; count < (i == 0 ? 12 : 8); ++count) count_request(replicas[i], now);
  }
  const PromptBlocks conversation{{1, 2, 3, 4, 5, 6, 7, 8}, 140};
  replicas[0].keys = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(choose(replicas, conversation, {}, now).replica, &replicas[0]);
  replicas[1].keys = replicas[0].keys;
  EXPECT_EQ(choose(replicas, conversation, {}, now).replica, &replicas[1]);
  const PromptBlocks fresh{{1, 2, 9}, 50};
  EXPECT_NE(choose(replicas, fresh, {}, now).replica, &replicas[0]);
}

TEST(Policy, LimitsHoldNobodyWhereAllAreOverOne) {
  std::vector<ReplicaState> replicas = healthy(2);
  const TimePoint now = Clock::now();
  replicas[0].running = 20;
  for (int count = 0; count < 20; ++count) count_request(replicas[1], now);
  EXPECT_NE(choose(replicas, kPrompt, {}, now).replica, nullptr);
}

TEST(Policy, OneThatComesLaterIsNotFlooded) {
  std::vector<ReplicaState> replicas = healthy(3);
  replicas[2].healthy = false;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 40; ++i) count_request(replicas[static_cast<size_t>(i % 2)], now);
  replicas[2].healthy = true;
  join(replicas, replicas[2], now);
  for (int i = 0; i < 30; ++i) count_request(*choose(replicas, kPrompt, {}, now).replica, now);
  EXPECT_LE(replicas[2].requests, 14u);
  EXPECT_GE(replicas[2].requests, 6u);
}

TEST(Policy, BelievesInWhatItSentForAWhile) {
  std::vector<ReplicaState> replicas = healthy(2);
  const TimePoint now = Clock::now();
  expect(replicas[1], kPrompt, now);
  EXPECT_EQ(cached_tokens(replicas[1], kPrompt, now), 64);
  EXPECT_EQ(cached_tokens(replicas[1], kPrompt, now + std::chrono::minutes(1)), 0);
}

TEST(Policy, NamesBlocksAsReplicasDo) {
  ReplicaState replica;
  replica.block_size = 4;
  replica.kv_model = "m/f16/4";
  const PromptBlocks blocks = blocks_of({{1, 2, 3, 4, 5, 6, 7, 8}, "\x1fsalt"}, replica, "ann");
  const std::vector<Token> first{1, 2, 3, 4};
  const kv::PrefixKey key = kv::child_key(kv::root_key("m/f16/4", "ann\x1fsalt"), first);
  EXPECT_EQ(blocks.keys, std::vector<uint64_t>{kv::short_key(key)}) << "the last token is always run";
  EXPECT_EQ(blocks.tokens, 8);
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue queue(1);
  std::string order;
  const auto enter = [&](const char* client, char name) {
    return queue.enter(client, [&order, name] { order += name; });
  };
  enter("a", '0');
  enter("a", '1');
  const uint64_t leaver = enter("a", '2');
  enter("a", '3');
  enter("b", 'x');
  enter("b", 'y');
  queue.leave(leaver);
  EXPECT_EQ(queue.waiting(), 4u);
  for (int i = 0; i < 5; ++i) queue.release();
  EXPECT_EQ(order, "01x3y");
  enter("c", 'c');
  EXPECT_EQ(order, "01x3yc") << "the place is free again";
}

// Whatever the cuts between pieces, the end is found, and bytes behind it are not taken.
TEST(ResponseTracker, FindsTheEnd) {
  using Phase = ResponseTracker::Phase;
  const std::map<std::string, bool> answers{
      {"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true},
      {"HTTP/1.1 204 No Content\r\n\r\n", true},
      {"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi", false}};
  for (const auto& [text, keep_alive] : answers) {
    for (size_t piece = 1; piece <= text.size(); ++piece) {
      ResponseTracker tracker(false);
      const std::string all = text + "X";
      size_t used = 0;
      while (used < all.size() && tracker.phase() < Phase::Done)
        used += tracker.feed(std::string_view(all).substr(used, piece));
      EXPECT_EQ(tracker.phase(), Phase::Done) << text;
      EXPECT_EQ(used, text.size()) << text;
      EXPECT_EQ(tracker.keep_alive(), keep_alive);
    }
  }
  ResponseTracker cut(false);
  cut.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  cut.finish();
  EXPECT_EQ(cut.phase(), Phase::Failed);
}

}  // namespace
}  // namespace sluice::route
