// What threads of low priority have a thread of normal priority do for them.
//
// A thread of low priority that holds a mutex may be preempted there, and does not run again while others keep the cores
// busy: for hundreds of milliseconds, in which whoever needs the mutex waits too. So it takes none that others need; it
// posts what it would have done with the mutex, and sleeps on a semaphore of its own for an answer. post() takes no lock.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>

namespace sluice {

// As std::counting_semaphore, whose waits of GCC 12 may miss a release.
class Semaphore {
 public:
  Semaphore() { sem_init(&semaphore_, 0, 0); }
  ~Semaphore() { sem_destroy(&semaphore_); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  void release() { sem_post(&semaphore_); }
  void acquire() {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }

 private:
  sem_t semaphore_{};
};

class Relay {
 public:
  // Belongs to whoever posts it, so that posting needs no memory. It may be posted again once its work has begun.
  struct Task {
    std::function<void()> work;  // must not throw
    Task* next = nullptr;
  };

  explicit Relay(const char* thread_name);
  // Does what was posted before.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Tasks of one thread are done in the order in which they were posted.
  void post(Task& task);

 private:
  void run(const char* thread_name);

  std::atomic<Task*> posted_{nullptr};  // the last one first
  std::atomic<bool> stopping_{false};
  Semaphore wake_;
  std::thread thread_;
};

}  // namespace sluice
