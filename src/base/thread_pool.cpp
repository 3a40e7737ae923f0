#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/platform.h"
#include "base/system/cores.h"
#include "base/system/futex.h"

namespace sluice {

namespace {

constexpr uint64_t kNoTask = 0x7fffffff;  // beyond the number of any task

}  // namespace

ThreadPool::ThreadPool(int threads, const std::vector<int>& processors, int spins) : spins_(spins) {
  const int count = std::clamp(threads, 1, 1024);
  workers_.reserve(static_cast<size_t>(count) - 1);
  for (int i = 1; i < count; ++i)
    workers_.emplace_back([this, processors] {
      if (!processors.empty()) stay_on(processors);
      work();
    });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  futex_wake(generation_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_tasks(uint64_t generation) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket >> 32) == generation) {
    const int index = static_cast<int>(ticket & 0xffffffffu);
    if (index >= tasks_.load(std::memory_order_acquire)) return;
    const auto* task = task_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    (*task)(index);
    if (unfinished_.fetch_sub(1) == 1 && waits_.load()) futex_wake(unfinished_);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work() {
  uint32_t seen = 0;
  while (true) {
    uint32_t current = generation_.load(std::memory_order_acquire);
    for (int spin = 0; current == seen && spin < spins_ && !rests_.load(std::memory_order_relaxed); ++spin) {
      cpu_relax();
      current = generation_.load(std::memory_order_acquire);
    }
    while (current == seen) {
      sleepers_.fetch_add(1);
      futex_wait(generation_, seen);
      sleepers_.fetch_sub(1);
      current = generation_.load(std::memory_order_acquire);
    }
    seen = current;
    if (stop_.load()) return;
    take_tasks(current);
  }
}

void ThreadPool::run(int tasks, FunctionRef<void(int)> task) {
  if (tasks <= 0) return;
  if (workers_.empty() || tasks == 1) {
    for (int i = 0; i < tasks; ++i) task(i);
    return;
  }
  SLUICE_CHECK_EQ(unfinished_.load(), 0);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  // A worker that is late holds the last region's ticket: it is void before that worker can see how many tasks this region
  // has, or it would take one of them for its own region's next.
  ticket_.store(uint64_t{generation} << 32 | kNoTask);
  task_.store(&task, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_release);
  unfinished_.store(tasks, std::memory_order_relaxed);
  ticket_.store(uint64_t{generation} << 32, std::memory_order_release);
  rests_.store(false, std::memory_order_relaxed);
  generation_.store(generation);
  if (sleepers_.load() > 0) futex_wake(generation_);
  take_tasks(generation);
  for (int spin = 0; spin < kSpins && unfinished_.load(std::memory_order_acquire) != 0; ++spin) cpu_relax();
  if (unfinished_.load(std::memory_order_acquire) != 0) sleep_until_finished();
}

void ThreadPool::rest() {
  rests_.store(true, std::memory_order_relaxed);
}

// Past the usual wait a worker has lost its core to another thread: it may have this one.
void ThreadPool::sleep_until_finished() {
  waits_.store(true);
  for (int left = unfinished_.load(); left != 0; left = unfinished_.load()) futex_wait(unfinished_, left);
  waits_.store(false);
}

void ThreadPool::for_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> range) {
  if (count <= 0) return;
  const int64_t most = std::max<int64_t>(1, count / std::max<int64_t>(1, grain));
  // Four ranges per thread even out cores of unequal speed without many hand-overs.
  const int64_t tasks = std::min<int64_t>(most, int64_t{threads()} * (threads() == 1 ? 1 : 4));
  // Threads that take turns get ranges that follow each other: memory is read in few streams.
  const int64_t turns = tasks % threads() == 0 ? tasks / threads() : 1;
  run(static_cast<int>(tasks), [&](int task) {
    const int64_t i = turns == 1 ? task : task % threads() * turns + task / threads();
    range(count * i / tasks, count * (i + 1) / tasks);
  });
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace sluice
