#include "server/core/io_threads.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <new>

#include "base/log.h"
#include "base/system/memory_reserve.h"
#include "base/system/thread_turn.h"
#include "base/thread_name.h"

namespace sluice::server {

namespace {

// What a handler throws ends that handler alone. The reserve is for what must not throw: Boost.Asio posts the end of a
// coroutine from a destructor.
void run(asio::io_context& context) {
  name_thread("http");
  shorten_thread_turns();  // or events of streams wait beside threads that compute
  MemoryReserve reserve;
  while (true) {
    try {
      context.run();
      return;
    } catch (const std::bad_alloc&) {  // whoever it was for has been told, or is by its destructor
    } catch (const std::exception& problem) {
      log_error("a connection's work failed: {}", problem.what());
    }
  }
}

}  // namespace

IoThreads::IoThreads(int threads) {
  for (int i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    // A context opens its files (epoll and the like) with its first timer or socket: at the start, where a lack of
    // files is an error of the start.
    const asio::steady_timer first(workers_.back()->context);
  }
}

IoThreads::~IoThreads() {
  join();
}

void IoThreads::start() {
  for (const std::unique_ptr<Worker>& worker : workers_)
    worker->thread = std::thread([&context = worker->context] { run(context); });
}

void IoThreads::run_on_each(void (*work)()) {
  for (const std::unique_ptr<Worker>& worker : workers_) asio::post(worker->context, work);
}

// Connections post to the first thread when they end, so it is let go last.
void IoThreads::join() {
  for (auto worker = workers_.rbegin(); worker != workers_.rend(); ++worker) {
    (*worker)->work.reset();
    if ((*worker)->thread.joinable()) (*worker)->thread.join();
  }
}

}  // namespace sluice::server
