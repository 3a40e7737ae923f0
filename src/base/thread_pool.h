// A fixed set of threads that share out the tasks of one parallel region at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace sluice {

// A non-owning reference to a callable; valid only during the call it is passed to.
template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// run() is called by one thread at a time, which works along; a pool of one thread starts none.
// Which thread runs a task is not fixed, so a task's result must depend on its number alone.
class ThreadPool {
 public:
  // Regions of one decode step follow each other within microseconds: looking so often for the next one, on the core, is cheaper
  // than a wake-up through the kernel.
  static constexpr int kSpins = 4000;

  // `threads` clamped to [1, 1024]; those that the pool starts run on these processors alone, where there are any, and sleep after
  // so many looks.
  explicit ThreadPool(int threads, const std::vector<int>& processors = {}, int spins = kSpins);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) once for each i in [0, tasks) and returns when all have ended.
  void run(int tasks, FunctionRef<void(int)> task);

  // Workers wait asleep until the next region, not on their cores: what comes until then is computed by others.
  void rest();
  int asleep() const { return sleepers_.load(); }  // workers; thread-safe

  // Splits [0, count) into ranges of at least `grain` and calls range(begin, end) for each.
  void for_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> range);

 private:
  void work();
  void take_tasks(uint64_t generation);
  void sleep_until_finished();

  // Generation in the upper half, next task in the lower: a worker that wakes late cannot take a task of
  // another region.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> unfinished_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> waits_{false};  // run() sleeps until the last task ends
  std::atomic<bool> rests_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int> tasks_{0};
  std::atomic<const FunctionRef<void(int)>*> task_{nullptr};
  const int spins_;  // of a worker
  std::vector<std::thread> workers_;
};

// Processors that this process may run on (the affinity mask), at least 1. How many threads to compute with: cores.h.
int available_cores();

}  // namespace sluice
