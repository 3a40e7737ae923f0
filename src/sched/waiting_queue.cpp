#include "sched/waiting_queue.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::sched {

namespace {

Clock::duration ticks(Seconds seconds) {
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

}  // namespace

void WaitingQueue::push(RequestState& entry, Seconds service) {
  Queue& queue = queues_[entry.client];
  const request::Request& request = *entry.request;
  if (entry.preempted()) {
    entry.rank = {TimePoint::min(), entry.order};
    queue.preempted[request.priority].insert(&entry);
  } else {
    entry.number = next_number_++;
    entry.rank = {request.arrival + ticks(kPatience), entry.number};
    if (request.first_token_by) entry.rank.first = *request.first_token_by - ticks(service);
    queue.fresh[request.priority].insert(&entry);
    entry.age_place = by_age_.insert(by_age_.end(), &entry);
    seats_ += entry.num_sequences;
    tokens_ += entry.prompt_size();
  }
  queue.by_age.emplace(entry.number, &entry);
  shares_.set_queued(*entry.client, true);
}

void WaitingQueue::remove(RequestState& entry) {
  const auto found = queues_.find(entry.client);
  SLUICE_CHECK(found != queues_.end());
  Queue& queue = found->second;
  auto& levels = entry.preempted() ? queue.preempted : queue.fresh;
  const auto level = levels.find(entry.request->priority);
  SLUICE_CHECK(level != levels.end() && level->second.erase(&entry) == 1);
  if (level->second.empty()) levels.erase(level);
  queue.by_age.erase(entry.number);
  if (!entry.preempted()) {
    by_age_.erase(entry.age_place);
    seats_ -= entry.num_sequences;
    tokens_ -= entry.prompt_size();
  }
  if (!queue.by_age.empty()) return;
  queues_.erase(found);
  shares_.set_queued(*entry.client, false);
}

void WaitingQueue::note_start(const Client& client) {
  if (const auto found = queues_.find(&client); found != queues_.end()) ++found->second.starts;
}

RequestState* WaitingQueue::front(const Client& client, bool may_join) const {
  const auto found = queues_.find(&client);
  if (found == queues_.end()) return nullptr;
  const Queue& queue = found->second;
  const auto first = [](const auto& levels) {
    return levels.empty() ? nullptr : *levels.begin()->second.begin();
  };
  RequestState* back = first(queue.preempted);
  RequestState* fresh = may_join ? first(queue.fresh) : nullptr;
  const bool by_age = queue.starts % kStartsPerOldest == kStartsPerOldest - 1;
  if (fresh != nullptr && by_age && back == nullptr && queue.fresh.size() > 1)
    return queue.by_age.begin()->second;
  if (back == nullptr) return fresh;
  const bool urgent = fresh != nullptr && fresh->request->priority > back->request->priority;
  return urgent && !by_age ? fresh : back;
}

const RequestState* WaitingQueue::youngest(const Client& client) const {
  const auto found = queues_.find(&client);
  if (found == queues_.end()) return nullptr;
  const auto& by_age = found->second.by_age;
  const auto last = std::find_if(by_age.rbegin(), by_age.rend(),
                                 [](const auto& item) { return !item.second->preempted(); });
  return last == by_age.rend() ? nullptr : last->second;
}

WaitingQueue::Ahead WaitingQueue::ahead_of(const Client& client, int priority, TimePoint start_by) const {
  Ahead ahead;
  const auto found = queues_.find(&client);
  if (found == queues_.end()) return ahead;
  for (const auto& [level, entries] : found->second.fresh) {
    if (level < priority) break;
    for (const RequestState* entry : entries) {
      if (level == priority && entry->rank.first > start_by) break;
      ++ahead.requests;
      ahead.tokens += entry->prompt_size();
    }
  }
  return ahead;
}

void WaitingQueue::for_oldest(size_t count, const std::function<void(const RequestState&)>& visit) const {
  for (auto entry = by_age_.begin(); entry != by_age_.end() && count > 0; ++entry, --count) visit(**entry);
}

}  // namespace sluice::sched
