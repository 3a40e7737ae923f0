// A call that wakes a connection, and may come when the connection, and the thread it ran on, are gone. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <new>
#include <utility>

namespace sluice::server {

class WakeUp {
 public:
  explicit WakeUp(std::function<void()> wake) : wake_(std::move(wake)) {}

  void operator()() noexcept {
    const std::lock_guard lock(mutex_);
    try {
      if (wake_) wake_();
    } catch (const std::bad_alloc&) {  // connections look by themselves
    }
  }
  // Nobody is woken any more.
  void close() {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
};

}  // namespace sluice::server
