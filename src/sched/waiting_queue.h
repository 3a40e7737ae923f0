// Requests that have not started. Higher priorities go first, but for every eighth start, which is the oldest's: a
// stream of urgent requests slows the others down and never stops them. Within one priority, clients take turns by deficit
// round-robin on tokens: a client is served while it has credit, pays for its prompts when they start and for
// its tokens when they come, and earns a quantum each time its turn passes in debt. Every operation is O(1)
// or O(log priorities), plus one visit for each client in debt; only clients with running requests can be in
// debt.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

#include "sched/entry.h"

namespace sluice::sched {

class WaitingQueue {
 public:
  explicit WaitingQueue(int quantum) : quantum_(quantum) {}

  bool empty() const { return by_age_.empty(); }
  size_t size() const { return by_age_.size(); }
  // Of all waiting requests together.
  int64_t seats() const { return seats_; }
  // REQUIRES: !empty()
  const Entry& oldest() const { return *by_age_.front(); }
  void for_oldest(size_t count, const std::function<void(const Entry&)>& visit) const;

  void push(Entry& entry);
  // Whose turn it is; null if empty. The same one until the queue changes, somebody starts or somebody is charged.
  Entry* front();
  // A request, waiting here or preempted, has started.
  void note_start() { ++starts_; }
  // This start goes by age, not by priority.
  bool by_age() const { return starts_ % kStartsPerOldest == kStartsPerOldest - 1; }
  // Takes a waiting request out; it stays a user of its client until left() is called.
  void remove(Entry& entry);
  // A request that was pushed has ended.
  void left(const std::string& client);
  // The client used the machine for this many tokens.
  void charge(const std::string& client, int64_t tokens);

  uint64_t visits() const { return visits_; }  // clients looked at by front(), ever
  size_t clients() const { return clients_.size(); }

 private:
  static constexpr uint64_t kStartsPerOldest = 8;
  struct Client {
    int64_t credit = 0;
    int64_t users = 0;  // requests waiting or running
  };
  struct Turn {
    Client* client = nullptr;
    std::list<Entry*> entries;
  };
  struct Level {
    std::list<Turn> ring;  // clients with waiting requests; the first one's turn it is
    std::unordered_map<const Client*, std::list<Turn>::iterator> turns;
  };

  Entry* front(Level& level);
  static int64_t rounds_of_debt(const Level& level, int64_t quantum);

  int64_t quantum_;
  std::unordered_map<std::string, Client> clients_;
  std::map<int, Level, std::greater<>> levels_;
  std::list<Entry*> by_age_;
  int64_t seats_ = 0;
  uint64_t visits_ = 0, starts_ = 0;
};

}  // namespace sluice::sched
