// Scheduler::plan: who starts, who comes back, and who has to make room.
#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>

#include "base/check.h"
#include "sched/scheduler.h"

namespace sluice::sched {

bool Scheduler::batch_may_start(TimePoint now) const {
  if (waiting_.empty()) return false;
  const Seconds max_batch_wait = options_.scheme.max_batch_wait;
  return max_batch_wait == Seconds{0} || closed_ || waiting_.num_sequences() >= options_.max_seqs ||
         Seconds(now - waiting_.oldest().request->arrival) >= max_batch_wait;
}

// The next request of the client that was served least, of those whose next one fits as far as is known. While
// somebody who was passed for long is waited for, only clients that have nothing running go on.
RequestState* Scheduler::candidate(bool may_join, bool holding) const {
  if (!may_join && !options_.scheme.continuous_admission)
    return preempted_.empty() ? nullptr : preempted_.begin()->second;
  for (const ClientShares::Client* client : shares_.queued()) {
    if (client->passed == step_number_ || (holding && client->sequences > 0)) continue;
    if (RequestState* entry = waiting_.front(*client, may_join)) return entry;
  }
  return nullptr;
}

// What does not fit holds up those of its client behind it, and lets a few other clients pass: what it lacks is given back
// to it as far as it is within its share, and beyond that it is waited for when it has been passed for long.
void Scheduler::admit(StepBuilder& builder, TimePoint now) {
  if (builder.preempted) return;
  if (builder.shared) {  // what was kept for those that start
    builder.budget = {options_.layout, step_limit(), options_.max_seqs};
    for (const request::Work& work : builder.step.work) builder.budget.add(work.end - work.begin);
  }
  const bool continuous_admission = options_.scheme.continuous_admission;
  const bool may_join =
      (continuous_admission || (running_.empty() && preempted_.empty())) && batch_may_start(now);
  for (RequestState* entry : builder.owed)
    if (entry->phase != Phase::Running) try_start(builder, *entry, now);
  bool holding = false;
  for (int passed = 0; passed < kMostPassed;) {
    RequestState* entry = candidate(may_join, holding);
    if (entry == nullptr) return;
    ++counters_.examined;
    const Start result = try_start(builder, *entry, now);
    if (result == Start::Started) continue;
    if (result == Start::StepFull || !continuous_admission) return;
    ++passed;
    entry->client->passed = step_number_;
    if (!entry->passed_since) entry->passed_since = now;
    holding |= is_aged(*entry, now);
  }
}

bool Scheduler::is_aged(const RequestState& entry, TimePoint now) const {
  return entry.passed_since && Seconds(now - *entry.passed_since) >= kPassedForLong;
}

// Sequences that it may start with; 0: it has to wait. Choices of a request may run one after the other; the lanes of a
// search run together, and one that was passed for long takes turns with the others from step to step.
int Scheduler::seats_for(const RequestState& entry, TimePoint now) const {
  const int free = options_.max_seqs - num_running_sequences_, live = entry.live();
  if (entry.search || !options_.scheme.continuous_admission) {
    if (live <= free) return live;
    const bool turns = options_.scheme.continuous_admission && is_aged(entry, now);
    return turns && num_running_sequences_ + live <= 2 * options_.max_seqs ? live : 0;
  }
  if (shares_.queued().size() < 2) return std::min(live, free);
  const int own = static_cast<int>(shares_.share(*entry.client, options_.max_seqs)) - entry.client->sequences;
  return std::min({live, free, std::max(1, own)});
}

Scheduler::Start Scheduler::try_start(StepBuilder& builder, RequestState& entry, TimePoint now) {
  const bool continuous_admission = options_.scheme.continuous_admission;
  if (continuous_admission && builder.budget.fit(1) == 0) return Start::StepFull;
  if (builder.shared && entry.client->claimed != step_number_) {
    entry.client->claimed = step_number_;
    entry.client->prompt_quota =
        std::max<int64_t>(1, static_cast<int64_t>(shares_.share(*entry.client, builder.budget.limit())));
  }
  const int sequences = seats_for(entry, now);
  if (sequences <= 0 || !start(builder, entry, sequences)) return Start::NoRoom;
  const bool wanted = options_.prefill == Prefill::Mixed || is_prefilling(entry);
  if (continuous_admission && wanted) plan_request(builder, entry, false);
  return Start::Started;
}

bool Scheduler::start(StepBuilder& builder, RequestState& entry, int sequences) {
  for (const SequenceState& lane : entry.lanes) {
    if (!lane.done && lane.in_flight > 0) return false;  // its tokens are not all known yet
  }
  if (!(entry.phase == Phase::Swapped ? bring_back(entry, sequences) : set_up(builder, entry, sequences)))
    return false;
  const bool first = entry.phase == Phase::Waiting;
  leave_queue(entry);
  entry.phase = Phase::Running;
  entry.passed_since.reset();
  entry.place = running_.insert(running_.end(), &entry);
  set_granted(entry, sequences);
  waiting_.note_start(*entry.client);
  if (!first) return true;
  entry.order = next_order_++;
  entry.known = true;
  entry.cached = entry.lanes.front().computed;
  builder.step.admit.push_back({entry.group, entry.request, entry.cached});
  if (!options_.scheme.continuous_admission) batch_rows_ += entry.num_sequences;
  ++counters_.started;
  counters_.prompt_tokens += static_cast<uint64_t>(entry.prompt_size());
  counters_.cached_tokens += static_cast<uint64_t>(entry.cached);
  return true;
}

bool Scheduler::reserve_capacity_if_due(RequestState& entry, std::span<const SeqId> family) {
  if (options_.kv_policy == KvPolicy::OnDemand && entry.preemptions < options_.max_preemptions) return true;
  entry.promised = kv_manager_.reserve_capacity(family, demand(*entry.request));
  return entry.promised;
}

// Requests that run will soon want more blocks. Starting another one on the last of them would only get
// somebody preempted.
bool Scheduler::leaves_headroom(const RequestState& entry, int sequences) const {
  if (entry.promised || running_.empty()) return true;
  for (int group = 0; group < kv_manager_.groups(); ++group) {
    if (kv_manager_.available(group) < headroom(group, sequences)) return false;
  }
  return true;
}

int Scheduler::headroom(int group, int sequences) const {
  return std::min(num_running_sequences_ + sequences, kv_manager_.capacity(group) / 32);
}

bool Scheduler::bring_back(RequestState& entry, int sequences) {
  const std::vector<SeqId> family = resident_lanes(entry);
  if (!reserve_capacity_if_due(entry, family)) return false;
  // Each lane may need a block for its next token; alone, there is one.
  const bool safe = entry.promised || running_.empty();
  return kv_manager_.swap_in(family, safe ? 0 : std::min(sequences, static_cast<int>(family.size())));
}

// Requests that wait share their prompt with whoever sent them. False: there is no memory for a copy of it.
bool Scheduler::take_prompt(const RequestState& entry, SequenceState& lane) {
  try {
    lane.tokens = entry.request->prompt;
  } catch (const std::bad_alloc&) {
    starved_.push_back(entry.request->id);
    return false;
  }
  return true;
}

bool Scheduler::set_up(const StepBuilder& builder, RequestState& entry, int sequences) {
  SequenceState& lane = *first_active(entry);
  if (lane.tokens.empty() && !take_prompt(entry, lane)) return false;
  if (entry.outgrown()) choose_rope_set(entry, static_cast<int>(lane.tokens.size()));
  kv_manager_.open(lane.seq, {entry.request->cache_salt, entry.rope_set, entry.request});
  if (reserve_capacity_if_due(entry, std::span(&lane.seq, 1)) && attach(builder, entry, lane) &&
      leaves_headroom(entry, sequences))
    return true;
  kv_manager_.release(lane.seq);
  lane.computed = 0;
  entry.promised = false;
  return false;
}

bool Scheduler::attach(const StepBuilder& builder, RequestState& entry, SequenceState& lane) {
  const std::span<const Token> tokens(entry.shares_prompt() ? entry.request->prompt : lane.tokens);
  if (entry.may_match() && options_.kv_cache) lane.computed = kv_manager_.match(lane.seq, tokens);
  const int target = entry.target(lane);
  int first = 0;  // tokens of the step that is being planned
  if (options_.scheme.continuous_admission) {
    if (kv_manager_.is_being_computed(lane.seq)) return false;
    first = chunk_size(builder, entry, lane.computed, target);
    if (first == 0 && target > lane.computed) return false;
  }
  const kv::Extent extent{.begin = lane.computed, .end = lane.computed + first, .total = target};
  return kv_manager_.reserve(lane.seq, extent);
}

// In order of preference from the back: of clients that hold more than their share of the blocks, then the least urgent,
// least recently served, youngest.
void Scheduler::find_victims(StepBuilder& builder) {
  builder.victims_known = true;
  std::copy_if(running_.begin(), running_.end(), std::back_inserter(builder.victims),
               [](const RequestState* other) { return !other->promised; });
  if (shares_.contended()) count_blocks();
  const auto rank = [&](const RequestState* e) {
    const bool over = shares_.contended() && e->client->kv_part > shares_.share(*e->client, 1);
    return std::tuple(over, -e->request->priority, -int64_t(e->last_served), e->order);
  };
  std::sort(builder.victims.begin(), builder.victims.end(),
            [&](const RequestState* a, const RequestState* b) { return rank(a) < rank(b); });
  counters_.examined += builder.victims.size();
}

// Preempts a victim of those that have no work in this step yet. True: try again. False: there is none, or it was the
// entry itself.
bool Scheduler::make_room(StepBuilder& builder, RequestState& entry) {
  if (!builder.victims_known) find_victims(builder);
  while (!builder.victims.empty()) {
    RequestState& victim = *builder.victims.back();
    const bool urgent = victim.client == entry.client && victim.request->priority > entry.request->priority;
    if (&victim == &entry || urgent) break;
    builder.victims.pop_back();
    const bool idle = victim.phase == Phase::Running && victim.last_served != step_number_;
    const bool moving = victim.search && victim.lanes.front().pending > 0;
    if (!idle || moving) continue;
    preempt(builder, victim);
    return true;
  }
  if (entry.last_served != step_number_) preempt(builder, entry);
  return false;
}

void Scheduler::preempt(StepBuilder& builder, RequestState& entry) {
  SLUICE_CHECK(!entry.promised);
  leave_queue(entry);
  const std::vector<SeqId> family = resident_lanes(entry);
  const bool swap =
      options_.preemption == Preemption::Swap && !entry.distrusts && kv_manager_.swap_out(family);
  if (!swap) drop_blocks(entry);
  entry.phase = swap ? Phase::Swapped : Phase::Dropped;
  ++(swap ? counters_.preempted_swapped : counters_.preempted_dropped);
  ++entry.preemptions;
  preempted_.emplace(std::pair(-entry.request->priority, entry.order), &entry);
  waiting_.push(entry);
  builder.step.preempted.push_back(entry.request->id);
  builder.preempted = true;
}

// Requests whose last tokens are not known yet keep their blocks until they are.
void Scheduler::drop_outgrown() {
  const std::vector<RequestState*> entries(running_.begin(), running_.end());
  for (RequestState* entry : entries) {
    const bool idle = std::all_of(entry->lanes.begin(), entry->lanes.end(),
                                  [](const SequenceState& lane) { return lane.done || lane.in_flight == 0; });
    if (!idle || !entry->outgrown()) continue;
    ++counters_.outgrown;
    compute_again(*entry);
  }
}

// Its blocks are of no use any more: it comes back like a preempted request, from nothing but its tokens.
void Scheduler::compute_again(RequestState& entry) {
  const bool ran = entry.phase == Phase::Running;
  if (ran) leave_queue(entry);
  drop_blocks(entry);  // swapped out in the meantime or not
  entry.phase = Phase::Dropped;
  if (!ran) return;
  preempted_.emplace(std::pair(-entry.request->priority, entry.order), &entry);
  waiting_.push(entry);
}

void Scheduler::drop_blocks(RequestState& entry) {
  for (SequenceState& lane : entry.lanes) {
    if (!lane.done) release(lane);
    lane.computed = 0;
  }
  entry.forked = false;
  entry.promised = false;
}

}  // namespace sluice::sched
