#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/system/thread_clock.h"

namespace sluice {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(tasks));
      for (int round = 0; round < 20; ++round)
        pool.run(tasks, [&](int i) { ++hits[static_cast<size_t>(i)]; });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 20);
    }
  }
}

TEST(ThreadPool, RangesCoverTheWholeOnce) {
  ThreadPool pool(3);
  for (int64_t count : {1, 5, 64, 1001}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
    pool.for_ranges(count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

// Regions of few and of many tasks in turn: a worker that is late for one must not take a task of the next.
TEST(ThreadPool, LateWorkersTakeNoTaskOfTheNextRegion) {
  ThreadPool pool(8);
  for (int round = 0; round < 20000; ++round) {
    const int tasks = round % 2 == 0 ? 2 : 32;
    std::atomic<int> ran = 0;
    pool.run(tasks, [&](int) { ++ran; });
    ASSERT_EQ(ran.load(), tasks) << "round " << round;
  }
}

// The caller gives its core up while a worker is at a long task: it neither spins nor yields in a loop.
TEST(ThreadPool, TheCallerSleepsWhileAWorkerIsLate) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> begun = 0;
    const ThreadClock clock = ThreadClock::of_this_thread();
    pool.run(2, [&](int) {
      ++begun;
      while (begun.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    });
    EXPECT_LT(clock.seconds(), 0.1);
  }
}

// They would look for the next region for minutes.
TEST(ThreadPool, WorkersAtRestLeaveTheirCores) {
  ThreadPool pool(3, {}, std::numeric_limits<int>::max());
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ran = 0;
    pool.run(3, [&](int) { ++ran; });
    EXPECT_EQ(ran.load(), 3);
    pool.rest();
    const TimePoint start = Clock::now();
    // One that is still on its way from the region may wake once more after all were asleep.
    int most = 0;
    while ((most = std::max(most, pool.asleep())) < 2 && seconds_since(start) < 20) std::this_thread::yield();
    ASSERT_EQ(most, 2) << "round " << round;
  }
}

}  // namespace
}  // namespace sluice
