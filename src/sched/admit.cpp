// Scheduler::plan: who starts, who comes back, and who has to make room.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/check.h"
#include "sched/scheduler.h"

namespace sluice::sched {

bool Scheduler::batch_may_start(TimePoint now) const {
  if (waiting_.empty()) return false;
  const Seconds patience = options_.scheme.patience;
  return patience == Seconds{0} || closed_ || waiting_.seats() >= options_.max_seqs ||
         Seconds(now - waiting_.oldest().request->arrival) >= patience;
}

// Preempted requests come back before others start, unless those are more urgent and it is not the oldest's turn.
Entry* Scheduler::candidate(bool may_join) {
  Entry* fresh = may_join ? waiting_.front() : nullptr;
  if (preempted_.empty()) return fresh;
  Entry* back = preempted_.begin()->second;
  const bool urgent = fresh != nullptr && fresh->request->priority > back->request->priority;
  return urgent && !waiting_.by_age() ? fresh : back;
}

// Strictly in order: what does not fit holds up those behind it, so that nobody is passed over for ever.
void Scheduler::admit(Draft& draft, TimePoint now) {
  if (draft.preempted) return;
  const bool joins = options_.scheme.joins;
  const bool may_join = (joins || (running_.empty() && preempted_.empty())) && batch_may_start(now);
  while (Entry* entry = candidate(may_join)) {
    ++counters_.examined;
    if (seats_taken_ + entry->seats > options_.max_seqs) return;
    if (joins && draft.budget.fit(1) == 0) return;
    if (!start(draft, *entry)) return;
    const bool wanted = options_.prefill == Prefill::Mixed || prompting(*entry);
    if (joins && wanted) plan_entry(draft, *entry, false);
  }
}

bool Scheduler::start(Draft& draft, Entry& entry) {
  for (const Lane& lane : entry.lanes) {
    if (!lane.done && lane.in_flight > 0) return false;  // its tokens are not all known yet
  }
  if (!(entry.phase == Phase::Swapped ? bring_back(entry) : set_up(draft, entry))) return false;
  const bool first = entry.phase == Phase::Waiting;
  leave_queue(entry);
  entry.phase = Phase::Running;
  entry.place = running_.insert(running_.end(), &entry);
  seats_taken_ += entry.seats;
  waiting_.note_start();
  if (!first) return true;
  entry.order = next_order_++;
  entry.known = true;
  entry.cached = entry.lanes.front().computed;
  draft.step.admit.push_back({entry.group, entry.request, entry.cached});
  if (!options_.scheme.joins) batch_rows_ += entry.seats;
  waiting_.charge(entry.request->client, entry.prompt_size());
  ++counters_.started;
  counters_.prompt_tokens += static_cast<uint64_t>(entry.prompt_size());
  counters_.cached_tokens += static_cast<uint64_t>(entry.cached);
  return true;
}

bool Scheduler::promise_if_due(Entry& entry, std::span<const SeqId> family) {
  if (options_.kv_policy == KvPolicy::OnDemand && entry.preemptions < options_.max_preemptions) return true;
  entry.promised = ledger_.promise(family, demand(*entry.request));
  return entry.promised;
}

// Requests that run will soon want more blocks. Starting another one on the last of them would only get
// somebody preempted.
bool Scheduler::leaves_headroom(const Entry& entry) const {
  if (entry.promised || running_.empty()) return true;
  for (int group = 0; group < ledger_.groups(); ++group) {
    const int headroom = std::min(seats_taken_ + entry.seats, ledger_.capacity(group) / 32);
    if (ledger_.available(group) < headroom) return false;
  }
  return true;
}

bool Scheduler::bring_back(Entry& entry) {
  const std::vector<SeqId> family = resident_lanes(entry);
  if (!promise_if_due(entry, family)) return false;
  // Each lane may need a block for its next token; alone, there is one.
  const bool safe = entry.promised || running_.empty();
  return ledger_.swap_in(family, safe ? 0 : static_cast<int>(family.size()));
}

bool Scheduler::set_up(const Draft& draft, Entry& entry) {
  Lane& lane = *leader(entry);
  if (entry.outgrown()) choose_rope_set(entry, static_cast<int>(lane.tokens.size()));
  ledger_.open(lane.seq, entry.request->cache_salt, entry.rope_set);
  if (promise_if_due(entry, std::span(&lane.seq, 1)) && attach(draft, entry, lane)) return true;
  ledger_.release(lane.seq);
  lane.computed = 0;
  entry.promised = false;
  return false;
}

bool Scheduler::attach(const Draft& draft, Entry& entry, Lane& lane) {
  const std::span<const Token> tokens(entry.shares_prompt() ? entry.request->prompt : lane.tokens);
  if (entry.may_match() && options_.kv_cache) lane.computed = ledger_.match(lane.seq, tokens);
  const int target = entry.target(lane);
  int first = 0;  // tokens of the step that is being planned
  if (options_.scheme.joins) {
    if (ledger_.content_is_coming(lane.seq)) return false;
    first = piece(draft.budget, target - lane.computed);
    if (first == 0 && target > lane.computed) return false;
  }
  const cache::Extent extent{.begin = lane.computed, .end = lane.computed + first, .total = target};
  return ledger_.reserve(lane.seq, extent) && leaves_headroom(entry);
}

// Preempts the least urgent, least recently served, youngest of those that have no work in this step yet.
// True: try again. False: there is none, or it was the entry itself.
bool Scheduler::make_room(Draft& draft, Entry& entry) {
  if (!draft.victims_known) {
    draft.victims_known = true;
    std::copy_if(running_.begin(), running_.end(), std::back_inserter(draft.victims),
                 [](const Entry* other) { return !other->promised; });
    std::sort(draft.victims.begin(), draft.victims.end(), [](const Entry* a, const Entry* b) {
      const auto rank = [](const Entry* e) {
        return std::tuple(-e->request->priority, -int64_t(e->last_served), e->order);
      };
      return rank(a) < rank(b);
    });
    counters_.examined += draft.victims.size();
  }
  while (!draft.victims.empty()) {
    Entry& victim = *draft.victims.back();
    if (&victim == &entry || victim.request->priority > entry.request->priority) break;
    draft.victims.pop_back();
    const bool idle = victim.phase == Phase::Running && victim.last_served != step_number_;
    const bool moving = victim.search && victim.lanes.front().pending > 0;
    if (!idle || moving) continue;
    preempt(draft, victim);
    return true;
  }
  if (entry.last_served != step_number_) preempt(draft, entry);
  return false;
}

void Scheduler::preempt(Draft& draft, Entry& entry) {
  SLUICE_CHECK(!entry.promised);
  leave_queue(entry);
  const std::vector<SeqId> family = resident_lanes(entry);
  const bool swap = options_.preemption == Preemption::Swap && !entry.distrusts && ledger_.swap_out(family);
  if (!swap) drop_blocks(entry);
  entry.phase = swap ? Phase::Swapped : Phase::Dropped;
  ++(swap ? counters_.preempted_swapped : counters_.preempted_dropped);
  ++entry.preemptions;
  preempted_.emplace(std::pair(-entry.request->priority, entry.order), &entry);
  draft.step.preempted.push_back(entry.request->id);
  draft.preempted = true;
}

// Requests whose last tokens are not known yet keep their blocks until they are.
void Scheduler::drop_outgrown() {
  const std::vector<Entry*> entries(running_.begin(), running_.end());
  for (Entry* entry : entries) {
    const bool idle = std::all_of(entry->lanes.begin(), entry->lanes.end(),
                                  [](const Lane& lane) { return lane.done || lane.in_flight == 0; });
    if (!idle || !entry->outgrown()) continue;
    ++counters_.outgrown;
    compute_again(*entry);
  }
}

// Its blocks are of no use any more: it comes back like a preempted request, from nothing but its tokens.
void Scheduler::compute_again(Entry& entry) {
  if (entry.phase == Phase::Running) {
    leave_queue(entry);
    preempted_.emplace(std::pair(-entry.request->priority, entry.order), &entry);
  }
  drop_blocks(entry);  // swapped out in the meantime or not
  entry.phase = Phase::Dropped;
}

void Scheduler::drop_blocks(Entry& entry) {
  for (Lane& lane : entry.lanes) {
    if (!lane.done) release(lane);
    lane.computed = 0;
  }
  entry.spread = false;
  entry.promised = false;
}

}  // namespace sluice::sched
