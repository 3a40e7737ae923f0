#include "route/fair_queue.h"

#include <algorithm>
#include <utility>

namespace sluice::route {

uint64_t FairQueue::enter(const std::string& client, Ready ready) {
  const uint64_t number = ++last_;
  if (taken_ < places_) {
    ++taken_;
    ready();
    return number;
  }
  auto found = std::find_if(turns_.begin(), turns_.end(), [&](const Client& c) { return c.name == client; });
  if (found == turns_.end()) found = turns_.insert(turns_.end(), Client{client, {}});
  found->waiters.push_back({number, std::move(ready)});
  ++waiting_;
  return number;
}

void FairQueue::leave(uint64_t number) {
  for (auto client = turns_.begin(); client != turns_.end(); ++client) {
    if (std::erase_if(client->waiters, [&](const Waiter& w) { return w.number == number; }) == 0) continue;
    --waiting_;
    if (client->waiters.empty()) turns_.erase(client);
    return;
  }
}

void FairQueue::release() {
  if (turns_.empty()) {
    --taken_;
    return;
  }
  Ready ready = std::move(turns_.front().waiters.front().ready);
  turns_.front().waiters.pop_front();
  --waiting_;
  if (turns_.front().waiters.empty()) {
    turns_.pop_front();
  } else {
    turns_.splice(turns_.end(), turns_, turns_.begin());
  }
  ready();
}

}  // namespace sluice::route
