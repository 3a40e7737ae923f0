#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "dist/communicator.h"
#include "dist/local_group.h"
#include "dist/shared_messages.h"

namespace sluice::dist {

namespace {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

void on_each(Ranks& ranks, const std::function<void(std::unique_ptr<Communicator>&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&body, &rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Of threads: by messages within the process, by shared memory, and by that where ranks that wait sleep at once.
std::vector<Ranks> make_groups(int size) {
  std::vector<Ranks> groups(3);
  for (Ranks& group : groups) group = make_local_group(size);
  for (size_t i = 1; i < groups.size(); ++i)
    on_each(groups[i], [i](std::unique_ptr<Communicator>& rank) {
      const Communicator* plain = rank.get();
      rank = through_shared_memory(std::move(rank));
      EXPECT_NE(rank.get(), plain);
      if (i == 2) rank->take_turns();
    });
  return groups;
}

// Runs the body on every rank of such groups.
void on_ranks(int size, const std::function<void(Communicator&)>& body) {
  for (Ranks& group : make_groups(size))
    on_each(group, [&](std::unique_ptr<Communicator>& rank) { body(*rank); });
}

// Values whose sum depends on the order in which it is made.
float value(int rank, size_t i) {
  return rank % 2 == 0 ? 1e8f + static_cast<float>(i) : 1.25f * static_cast<float>(rank) - 1e8f;
}

}  // namespace

TEST(Communicator, AllReduceAddsInTheOrderOfRanks) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}, size_t{20011}}) {
    on_ranks(3, [&](Communicator& group) {
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = value(group.rank(), i);
      group.all_reduce(values);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(values[i], (value(0, i) + value(1, i)) + value(2, i)) << count << " " << i;
    });
  }
}

TEST(Communicator, ReduceScatterLeavesTheOwnShare) {
  on_ranks(4, [](Communicator& group) {
    std::vector<float> values(10);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i) + static_cast<float>(group.rank());
    const Range mine = group.reduce_scatter(values);
    EXPECT_EQ(mine, share_of(10, group.rank(), 4));
    for (int64_t i = mine.begin; i < mine.end; ++i)
      EXPECT_EQ(values[static_cast<size_t>(i)], static_cast<float>(4 * i + 6));
  });
}

// Shares are whole rows, of which a rank may have none.
TEST(Communicator, RowsStayTogether) {
  constexpr int64_t kWidth = 3;
  for (const int64_t rows : {1, 2, 5, 4096}) {
    on_ranks(4, [&](Communicator& group) {
      std::vector<float> values(static_cast<size_t>(rows * kWidth));
      for (size_t i = 0; i < values.size(); ++i) values[i] = value(group.rank(), i);
      const Range mine = group.reduce_scatter(values, kWidth), own = share_of(rows, group.rank(), 4);
      EXPECT_EQ(mine, (Range{own.begin * kWidth, own.end * kWidth}));
      group.all_gather(values, kWidth);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], ((value(0, i) + value(1, i)) + value(2, i)) + value(3, i)) << rows << " " << i;
    });
  }
}

TEST(Communicator, AllToAllGivesEachRankItsRowsOfAll) {
  on_ranks(3, [](Communicator& group) {
    const std::vector<float> values(10, static_cast<float>(group.rank()));  // five rows of two
    const Range own = share_of(5, group.rank(), 3);
    std::vector<float> parts(static_cast<size_t>(own.size() * 2 * 3), -1.0f);
    group.all_to_all(values, 2, parts);
    for (size_t i = 0; i < parts.size(); ++i)
      EXPECT_EQ(parts[i], static_cast<float>(i / static_cast<size_t>(own.size() * 2)));
  });
}

TEST(Communicator, GathersBroadcastsAndSends) {
  on_ranks(3, [](Communicator& group) {
    std::vector<float> all(7, -1.0f);
    const Range mine = share_of(7, group.rank(), 3);
    for (int64_t i = mine.begin; i < mine.end; ++i) all[static_cast<size_t>(i)] = static_cast<float>(i);
    group.all_gather(all);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i));

    int number = group.rank() == 1 ? 42 : 0;
    group.broadcast(1, std::as_writable_bytes(std::span(&number, 1)));
    EXPECT_EQ(number, 42);

    const std::string text = "a message";
    if (group.rank() == 0) group.send_message(2, std::as_bytes(std::span(text)));
    if (group.rank() == 0) group.send_message(2, {});
    if (group.rank() == 2) {
      const std::vector<std::byte> got = group.receive_message(0);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), text);
      EXPECT_TRUE(group.receive_message(0).empty());
    }
    group.barrier();
  });
}

TEST(Communicator, WhatIsPostedWaitsForItsReceiver) {
  for (Ranks& ranks : make_groups(2)) {
    const std::vector<float> large(1 << 20, 3.0f);  // more than a transport would keep by itself
    const std::string text = "a message";
    for (size_t rank = 0; rank < 2; ++rank) {  // one thread: nobody receives yet
      Subgroup pair(*ranks[rank], 0, 2);
      pair.post(1 - pair.rank(), std::as_bytes(std::span(large)));
      pair.post_message(1 - pair.rank(), std::as_bytes(std::span(text)));
      pair.post_message(1 - pair.rank(), {});
      pair.send(1 - pair.rank(), std::as_bytes(std::span(large).first(2)));
      pair.progress();
    }
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<float> got(large.size()), behind(2);
      Communicator& own = *ranks[static_cast<size_t>(rank)];
      own.receive(1 - rank, std::as_writable_bytes(std::span(got)));
      EXPECT_EQ(got, large);
      EXPECT_EQ(own.receive_message(1 - rank).size(), text.size());
      EXPECT_TRUE(own.receive_message(1 - rank).empty());
      own.receive(1 - rank, std::as_writable_bytes(std::span(behind)));
      EXPECT_EQ(behind[1], 3.0f);
    }
  }
}

// Longer than what a transport keeps: they move while both ranks are in the call, or while the sender lets them.
TEST(Communicator, LongMessagesArriveInOrder) {
  on_ranks(2, [](Communicator& pair) {
    const int other = 1 - pair.rank();
    std::vector<float> large(6 << 20), got(large.size());
    for (size_t i = 0; i < large.size(); ++i)
      large[i] = static_cast<float>(i % 977 + static_cast<size_t>(pair.rank()));
    const float last = static_cast<float>(pair.rank());
    for (int turn = 0; turn < 2; ++turn) {
      pair.post(other, std::as_bytes(std::span(large)));
      pair.post(other, std::as_bytes(std::span(&last, 1)));
      pair.progress();
      float behind = -1;
      pair.receive(other, std::as_writable_bytes(std::span(got)));
      pair.receive(other, std::as_writable_bytes(std::span(&behind, 1)));
      EXPECT_EQ(behind, static_cast<float>(other));
      for (size_t i = 0; i < got.size(); i += 311)
        ASSERT_EQ(got[i], static_cast<float>(i % 977 + static_cast<size_t>(other))) << i;
      const Communicator::Outgoing out[2] = {{other, std::as_bytes(std::span(large))},
                                             {other, std::as_bytes(std::span(&last, 1))}};
      const Communicator::Incoming in[2] = {{other, std::as_writable_bytes(std::span(got))},
                                            {other, std::as_writable_bytes(std::span(&behind, 1))}};
      pair.exchange(out, in);
      EXPECT_EQ(got[5], static_cast<float>(5 + other));
      EXPECT_EQ(behind, static_cast<float>(other));
    }
  });
}

TEST(Communicator, SubgroupsSpeakAmongThemselves) {
  on_ranks(4, [](Communicator& world) {
    Subgroup pair(world, world.rank() / 2 * 2, 2);
    EXPECT_EQ(pair.size(), 2);
    EXPECT_EQ(pair.rank(), world.rank() % 2);
    std::vector<float> values{static_cast<float>(world.rank())};
    pair.all_reduce(values);
    EXPECT_EQ(values[0], world.rank() < 2 ? 1.0f : 5.0f);
  });
}

TEST(Communicator, SubgroupsMayBeEveryThirdRank) {
  on_ranks(6, [](Communicator& world) {
    Subgroup pair(world, world.rank() % 3, 2, 3);
    EXPECT_EQ(pair.rank(), world.rank() / 3);
    std::vector<float> values{static_cast<float>(world.rank())};
    pair.all_reduce(values);
    EXPECT_EQ(values[0], static_cast<float>(2 * (world.rank() % 3) + 3));
    const std::string text = "a message";
    if (pair.rank() == 0) pair.post_message(1, std::as_bytes(std::span(text)));
    if (pair.rank() == 1) {
      EXPECT_EQ(pair.receive_message(0).size(), text.size());
    }
  });
}

TEST(Communicator, ALostRankIsNamedToThoseWhoWait) {
  for (Ranks& ranks : make_groups(2)) {
    std::string problem;
    std::thread waiting([&] {
      try {
        std::vector<float> values(3);
        ranks[0]->all_reduce(values);
      } catch (const GroupFailure& failure) {
        problem = failure.what();
      }
    });
    ranks[1].reset();
    waiting.join();
    EXPECT_EQ(problem, "rank 1 has left the group");
  }
}

TEST(Communicator, LengthsThatDifferAreAFailure) {
  for (Ranks& ranks : make_groups(2)) {
    const std::byte sent[4] = {};
    std::byte expected[8] = {};
    ranks[0]->send(1, sent);
    try {
      ranks[1]->receive(0, expected);
      FAIL();
    } catch (const GroupFailure& failure) {
      EXPECT_STREQ(failure.what(), "rank 0 sent 4 bytes, rank 1 expects 8");
    }
  }
}

}  // namespace sluice::dist
