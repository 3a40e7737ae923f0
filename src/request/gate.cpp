#include "request/gate.h"

#include <utility>

#include "base/check.h"

namespace sluice::request {

void Gate::settle(Status status) {
  std::vector<std::function<void()>> wakes;
  {
    const std::lock_guard lock(mutex_);
    SLUICE_CHECK(state() == State::Closed);
    if (!status) error_ = status.error();
    state_.store(status ? State::Open : State::Failed, std::memory_order_release);
    wakes.swap(wakes_);
  }
  for (const std::function<void()>& wake : wakes) wake();
}

void Gate::when_settled(std::function<void()> wake) const {
  {
    const std::lock_guard lock(mutex_);
    if (state() == State::Closed) {
      wakes_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace sluice::request
