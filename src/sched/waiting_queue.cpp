#include "sched/waiting_queue.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice::sched {

void WaitingQueue::push(Entry& entry) {
  const auto [found, fresh] = clients_.try_emplace(entry.request->client);
  Client& client = found->second;
  if (fresh) client.credit = quantum_;
  ++client.users;
  Level& level = levels_[entry.request->priority];
  auto turn = level.turns.find(&client);
  if (turn == level.turns.end()) {
    level.ring.push_back({&client, {}});
    turn = level.turns.emplace(&client, std::prev(level.ring.end())).first;
  }
  std::list<Entry*>& entries = turn->second->entries;
  entry.place = entries.insert(entries.end(), &entry);
  entry.age_place = by_age_.insert(by_age_.end(), &entry);
  seats_ += entry.seats;
}

void WaitingQueue::remove(Entry& entry) {
  const auto level = levels_.find(entry.request->priority);
  SLUICE_CHECK(level != levels_.end());
  const auto turn = level->second.turns.find(&clients_.at(entry.request->client));
  SLUICE_CHECK(turn != level->second.turns.end());
  std::list<Entry*>& entries = turn->second->entries;
  entries.erase(entry.place);
  if (entries.empty()) {
    level->second.ring.erase(turn->second);
    level->second.turns.erase(turn);
    if (level->second.ring.empty()) levels_.erase(level);
  }
  by_age_.erase(entry.age_place);
  seats_ -= entry.seats;
}

void WaitingQueue::left(const std::string& client) {
  const auto found = clients_.find(client);
  SLUICE_CHECK(found != clients_.end());
  if (--found->second.users == 0) clients_.erase(found);
}

void WaitingQueue::charge(const std::string& client, int64_t tokens) {
  const auto found = clients_.find(client);
  SLUICE_CHECK(found != clients_.end());
  found->second.credit -= tokens;
}

Entry* WaitingQueue::front() {
  if (levels_.empty()) return nullptr;
  return levels_.size() > 1 && by_age() ? by_age_.front() : front(levels_.begin()->second);
}

Entry* WaitingQueue::front(Level& level) {
  // After one full round without credit, the rounds in which nobody would get any are taken at once.
  for (size_t visited = 0; level.ring.front().client->credit <= 0; ++visited) {
    if (visited == level.ring.size()) {
      const int64_t rounds = rounds_of_debt(level, quantum_);
      for (Turn& turn : level.ring) turn.client->credit += rounds * quantum_;
      visits_ += level.ring.size();
      continue;
    }
    ++visits_;
    level.ring.front().client->credit += quantum_;
    level.ring.splice(level.ring.end(), level.ring, level.ring.begin());
  }
  return level.ring.front().entries.front();
}

void WaitingQueue::for_oldest(size_t count, const std::function<void(const Entry&)>& visit) const {
  for (auto entry = by_age_.begin(); entry != by_age_.end() && count > 0; ++entry, --count) visit(**entry);
}

int64_t WaitingQueue::rounds_of_debt(const Level& level, int64_t quantum) {
  int64_t rounds = std::numeric_limits<int64_t>::max();
  for (const Turn& turn : level.ring) rounds = std::min(rounds, -turn.client->credit / quantum);
  return std::max<int64_t>(rounds, 0);
}

}  // namespace sluice::sched
