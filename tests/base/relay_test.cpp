#include "base/system/relay.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(Relay, DoesTasksOfAThreadInTheirOrderAndAllBeforeItEnds) {
  constexpr int kThreads = 4, kTasks = 500;
  std::array<std::vector<int>, kThreads> done;  // the relay's thread alone touches it
  std::array<std::vector<Relay::Task>, kThreads> tasks;
  for (size_t t = 0; t < kThreads; ++t) {
    tasks[t].resize(kTasks);
    for (int i = 0; i < kTasks; ++i)
      tasks[t][static_cast<size_t>(i)].work = [&done, t, i] { done[t].push_back(i); };
  }
  {
    Relay relay("relay");
    std::vector<std::thread> posters;
    for (auto& own : tasks)
      posters.emplace_back([&relay, &own] {
        for (Relay::Task& task : own) relay.post(task);
      });
    for (std::thread& poster : posters) poster.join();
  }
  for (const std::vector<int>& order : done) {
    ASSERT_EQ(order.size(), kTasks);
    for (int i = 0; i < kTasks; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(Relay, TakesATaskAgainOnceItsWorkHasBegun) {
  Relay relay("relay");
  Semaphore answered;
  int count = 0;
  Relay::Task task;
  task.work = [&] {
    ++count;
    answered.release();
  };
  for (int i = 0; i < 1000; ++i) {
    relay.post(task);
    answered.acquire();
  }
  EXPECT_EQ(count, 1000);
}

}  // namespace
}  // namespace sluice
