// Requests that wait for their start, and preempted ones that wait to come back. Which client's turn it is says
// ClientShares; this is the order among the requests of one client: higher priorities go first, but for every eighth
// start, which is the oldest's: a stream of urgent requests slows the others down and never stops them. Within one
// priority preempted ones come back before others start, and those go by slack: by the moment at which they have to start to
// meet their deadline. Requests without a deadline have kPatience, so that they are never passed for ever.
// Every operation is O(log requests of the client).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <unordered_map>

#include "sched/client_shares.h"
#include "sched/request_state.h"

namespace sluice::sched {

class WaitingQueue {
 public:
  using Client = ClientShares::Client;
  static constexpr Seconds kPatience{30};

  explicit WaitingQueue(ClientShares& shares) : shares_(shares) {}

  // Of those that have not started.
  bool empty() const { return by_age_.empty(); }
  size_t size() const { return by_age_.size(); }
  int64_t num_sequences() const { return seats_; }  // of all together
  int64_t tokens() const { return tokens_; }        // of their prompts
  // REQUIRES: !empty()
  const RequestState& oldest() const { return *by_age_.front(); }
  void for_oldest(size_t count, const std::function<void(const RequestState&)>& visit) const;

  // By its phase: one that has not started, or a preempted one. `service`: how long it will take to its first token.
  void push(RequestState& entry, Seconds service = Seconds{0});
  void remove(RequestState& entry);
  // Whose turn it is among the client's; null where it has none. may_join false: none of those that have not started.
  RequestState* front(const Client& client, bool may_join = true) const;
  // One of the client's has started.
  void note_start(const Client& client);
  // The last that came of those that have not started; null where there is none.
  const RequestState* youngest(const Client& client) const;
  // Requests of the client that have not started and go before one that should start at this time, with its priority, and
  // the tokens of their prompts.
  struct Ahead {
    int requests = 0;
    int64_t tokens = 0;
  };
  Ahead ahead_of(const Client& client, int priority, TimePoint start_by) const;

 private:
  static constexpr uint64_t kStartsPerOldest = 8;
  struct ByRank {
    bool operator()(const RequestState* a, const RequestState* b) const { return a->rank < b->rank; }
  };
  using Level = std::set<RequestState*, ByRank>;
  struct Queue {
    std::map<int, Level, std::greater<>> fresh, preempted;  // by priority
    std::map<uint64_t, RequestState*> by_age;
    uint64_t starts = 0;
  };

  ClientShares& shares_;
  std::unordered_map<const Client*, Queue> queues_;  // of clients that have requests here
  std::list<RequestState*> by_age_;
  int64_t seats_ = 0;
  int64_t tokens_ = 0;
  uint64_t next_number_ = 1;
};

}  // namespace sluice::sched
