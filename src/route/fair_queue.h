// Who goes next where there are more requests than places: clients take turns, so that one that sends much waits for
// itself. One thread's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>

namespace sluice::route {

class FairQueue {
 public:
  explicit FairQueue(int64_t places) : places_(places) {}

  using Ready = std::function<void()>;
  // Calls `ready` when the client has a place: at once where one is free and nobody waits. The number is for leave().
  uint64_t enter(const std::string& client, Ready ready);
  // Nobody waits for it any more.
  void leave(uint64_t number);
  // A place is free again.
  void release();
  size_t waiting() const { return waiting_; }

 private:
  struct Waiter {
    uint64_t number;
    Ready ready;
  };
  struct Client {
    std::string name;
    std::deque<Waiter> waiters;  // not empty
  };

  int64_t places_;
  int64_t taken_ = 0;
  size_t waiting_ = 0;
  uint64_t last_ = 0;
  std::list<Client> turns_;  // the first is next
};

}  // namespace sluice::route
