#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

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

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_UNDER_TSAN
#endif
#endif
#ifdef SLUICE_UNDER_TSAN
constexpr bool kWakingCostsMost = true;
#else
constexpr bool kWakingCostsMost = false;
#endif

double process_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What a region costs with what its workers do in the two milliseconds after it.
double cost_of_regions(ThreadPool& pool, bool rests) {
  const double begin = process_seconds();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ran = 0;
    pool.run(4, [&](int) { ++ran; });
    EXPECT_EQ(ran.load(), 4);
    if (rests) pool.rest();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return process_seconds() - begin;
}

TEST(ThreadPool, WorkersAtRestLeaveTheirCores) {
  ThreadPool pool(4);
  double awake = 1e9, at_rest = 1e9;  // the least of several, beside whatever else runs
  for (int attempt = 0; attempt < 6; ++attempt) {
    awake = std::min(awake, cost_of_regions(pool, false));
    at_rest = std::min(at_rest, cost_of_regions(pool, true));
  }
  if (!kWakingCostsMost) {
    EXPECT_LT(at_rest, 0.9 * awake) << awake;
  }
}

}  // namespace
}  // namespace sluice
