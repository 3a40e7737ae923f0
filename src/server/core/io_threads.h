// Threads that serve connections, each with an io_context of its own: what begins on a thread ends on it.
//
// A coroutine must not move between threads. Boost.Asio keeps caches of coroutine frames and operations per thread, and
// Clang keeps the address of a thread-local variable over a suspension point: resumed on another thread, a coroutine
// would use the caches of the first one. For the same reason a coroutine is spawned by a handler that runs on its thread.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace sluice::server {

namespace asio = boost::asio;

class IoThreads {
 public:
  explicit IoThreads(int threads);  // at least 1
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  // The first thread's. Handlers of one context never run at once.
  asio::io_context& first() { return workers_.front()->context; }
  // In turn, the next thread's. Of one thread at a time.
  asio::io_context& next() { return workers_[turn_++ % workers_.size()]->context; }

  void start();
  // On every thread, when it is free to.
  void run_on_each(void (*work)());
  // Waits until nothing is left to do on any thread. What could post to one afterwards must have ended, or be ended by
  // what is waited for.
  void join();

 private:
  struct Worker {
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::thread thread;
  };
  std::vector<std::unique_ptr<Worker>> workers_;
  size_t turn_ = 0;
};

}  // namespace sluice::server
