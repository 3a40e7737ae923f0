// What a request waits for beside its prompt: the prompt runs meanwhile, and nothing is sampled before the gate opens.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"

namespace sluice::request {

class Gate {
 public:
  enum class State : uint8_t { Closed, Open, Failed };

  Gate() = default;
  virtual ~Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  State state() const { return state_.load(std::memory_order_acquire); }
  // REQUIRES: state() is Failed.
  const Error& error() const { return *error_; }

  // Opens it, or, by an error, ends the requests that wait. Once.
  void settle(Status status);
  // Calls `wake` when it is settled: at once where it is, else from the thread that settles it.
  void when_settled(std::function<void()> wake) const;

 private:
  std::atomic<State> state_{State::Closed};
  std::optional<Error> error_;  // written before the state
  mutable std::mutex mutex_;
  mutable std::vector<std::function<void()>> wakes_;
};

}  // namespace sluice::request
