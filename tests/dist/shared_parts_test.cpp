#include "dist/shared_parts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "dist/local_group.h"

namespace sluice::dist {

namespace {

void on_local_ranks(int size, const std::function<void(Communicator&)>& body) {
  std::vector<std::unique_ptr<Communicator>> ranks = make_local_group(size);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&body, &rank] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST(SharedParts, RanksReadWhatTheOthersWroteBeforeABarrier) {
  on_local_ranks(3, [](Communicator& group) {
    const std::unique_ptr<SharedParts> parts = SharedParts::make(group, 32);
    ASSERT_NE(parts, nullptr);
    for (int turn = 0; turn < 2000; ++turn) {
      const auto half = static_cast<size_t>(turn % 2) * 16;  // what others still read is not written
      parts->of(group.rank())[half + 7] = static_cast<float>(turn + 1000 * group.rank());
      parts->barrier();
      for (int rank = 0; rank < 3; ++rank)
        ASSERT_EQ(parts->of(rank)[half + 7], static_cast<float>(turn + 1000 * rank)) << turn;
    }
  });
}

// Longer than any rank spins.
TEST(SharedParts, ASleeperIsWoken) {
  on_local_ranks(2, [](Communicator& group) {
    const std::unique_ptr<SharedParts> parts = SharedParts::make(group, 1);
    ASSERT_NE(parts, nullptr);
    for (int turn = 0; turn < 4; ++turn) {
      if (turn % 2 == group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      parts->barrier();
    }
  });
}

TEST(SharedParts, SubgroupsHaveMemoryOfTheirOwn) {
  on_local_ranks(4, [](Communicator& world) {
    Subgroup pair(world, world.rank() / 2 * 2, 2);
    const std::unique_ptr<SharedParts> parts = SharedParts::make(pair, 4);
    ASSERT_NE(parts, nullptr);
    parts->of(pair.rank())[0] = static_cast<float>(world.rank());
    parts->barrier();
    EXPECT_EQ(parts->of(1 - pair.rank())[0], static_cast<float>(world.rank() ^ 1));
    pair.barrier();
  });
}

TEST(SharedParts, ARankThatLeavesIsNamedToThoseWhoWait) {
  on_local_ranks(2, [](Communicator& group) {
    const std::unique_ptr<SharedParts> parts = SharedParts::make(group, 1);
    ASSERT_NE(parts, nullptr);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return;
    }
    try {
      parts->barrier();
      ADD_FAILURE() << "rank 1 has not come";
    } catch (const GroupFailure& failure) {
      EXPECT_STREQ(failure.what(), "rank 1 has left the group");
    }
  });
}

// None of this size: every rank is told so, and goes on with messages.
TEST(SharedParts, WhereThereIsNoMemoryAllRanksKnow) {
  on_local_ranks(2, [](Communicator& group) {
    EXPECT_EQ(SharedParts::make(group, size_t{1} << 50), nullptr);
    std::vector<float> values{1.0f};
    group.all_reduce(values);
    EXPECT_EQ(values[0], 2.0f);
  });
}

}  // namespace sluice::dist
