// Scheduler::plan: the work of requests that run.
#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace sluice::sched {

request::Step Scheduler::plan(TimePoint now) {
  ++step_number_;
  shares_.advance(now);
  StepBuilder builder{.step = {}, .budget = {options_.layout, step_limit(), options_.max_seqs}};
  builder.step.pictures = picture_share();
  builder.step.retire = std::exchange(retire_, {});
  builder.step.lanes = std::exchange(moved_, {});
  if (options_.rope.count > 1) drop_outgrown();
  if (!options_.scheme.continuous_admission) {
    admit(builder, now);  // before any work: a padded step has a row for every member of the batch
    builder.budget = {options_.layout, options_.max_step_tokens, options_.max_seqs, batch_rows_};
  } else if (shares_.contended()) {
    take_back(builder, now);
    if (options_.scheme.chunked_prefill) part_step(builder);
  }
  if (options_.prefill == Prefill::Separate) {
    part_running();
    plan_prompts(builder);
    if (options_.scheme.continuous_admission) admit(builder, now);
    if (builder.step.work.empty()) {
      part_running();
      plan_decoding(builder);
    }
  } else {
    part_running();
    plan_decoding(builder);
    plan_prompts(builder);
    if (options_.scheme.continuous_admission) admit(builder, now);
  }
  if (options_.scheme.continuous_admission) grow_grants();
  finish_step(builder);
  return std::move(builder.step);
}

// More than one token to run before the next one can be sampled.
bool Scheduler::is_prefilling(const RequestState& entry) {
  if (entry.shares_prompt() && !entry.forked) return true;
  return std::any_of(entry.lanes.begin(), entry.lanes.end(), [&](const SequenceState& lane) {
    return !lane.done && entry.target(lane) - lane.computed > 1;
  });
}

// Lists, since preemption changes running_; the work of one request does not change which of them another is in.
void Scheduler::part_running() {
  decoding_.clear();
  prefilling_.clear();
  for (RequestState* entry : running_) (is_prefilling(*entry) ? prefilling_ : decoding_).push_back(entry);
  counters_.examined += running_.size();
}

// Of all sequences that decode, those of steps in flight among them, a step takes its share.
void Scheduler::plan_decoding(StepBuilder& builder) {
  if (options_.stages > 1 && options_.scheme.continuous_admission) {
    int sequences = 0;
    for (const RequestState* entry : decoding_) sequences += std::min(entry->granted, entry->live());
    builder.decodes_left = (sequences + options_.stages - 1) / options_.stages;
  }
  plan_each(builder, decoding_);
  builder.decodes_left = kNoCeiling;
}

void Scheduler::plan_each(StepBuilder& builder, const std::vector<RequestState*>& entries) {
  builder.step.work.reserve(builder.step.work.size() + entries.size());
  for (RequestState* entry : entries)
    if (entry->phase == Phase::Running && entry->last_served != step_number_)
      plan_request(builder, *entry, true);
}

bool Scheduler::plan_request(StepBuilder& builder, RequestState& entry, bool may_preempt) {
  if (entry.shares_prompt() && !entry.forked) {
    SequenceState& first = *first_active(entry);
    const int shared = entry.prompt_size() - 1;
    if (first.computed < shared) return plan_lane(builder, entry, first, shared, may_preempt);
    if (entry.gated() || !fork_sequences(builder, entry)) return false;
  }
  if (entry.search && entry.lanes.size() > 1) return plan_group(builder, entry, may_preempt);
  bool any = false;
  int sequences = 0;
  for (SequenceState& lane : entry.lanes) {
    const bool stays = lane.done || lane.length() > entry.ceiling;
    if (!stays && ++sequences > entry.granted) break;  // the rest waits for these to end
    // Nothing is run ahead of a search's next move, of a token that the host samples or that drafts may follow, nor beyond
    // the last output of a lane.
    const bool full = !entry.search && lane.length() - entry.prompt_size() >= entry.most_outputs();
    const bool waits = entry.waits || lane.guessed || options_.stages > 1;
    if (lane.done || lane.verifying || full || (waits && lane.pending > 0)) continue;
    if (builder.decodes_left <= 0) break;
    any |= plan_lane(builder, entry, lane, entry.target(lane), may_preempt);
    if (entry.phase != Phase::Running) return false;
  }
  return any;
}

// The lanes of a search sample in the same step or not at all; before that, those that lag behind catch up.
bool Scheduler::plan_group(StepBuilder& builder, RequestState& entry, bool may_preempt) {
  bool ready = true;
  StepBudget trial = builder.budget;
  if (builder.decodes_left <= 0) return false;
  for (const SequenceState& lane : entry.lanes) {
    if (lane.pending > 0) return false;
    ready &= lane.length() - lane.computed == 1;
    if (ready && trial.fit(1) == 0) return false;
    trial.add(1);
  }
  bool any = false;
  for (SequenceState& lane : entry.lanes) {
    if (ready && !reserve(builder, entry, lane, 1, may_preempt)) return false;
    if (!ready) any |= plan_lane(builder, entry, lane, lane.length() - 1, may_preempt);
    if (entry.phase != Phase::Running) return false;
  }
  if (!ready) return any;
  for (SequenceState& lane : entry.lanes) push_work(builder, entry, lane, 1);
  return true;
}

bool Scheduler::plan_lane(StepBuilder& builder, RequestState& entry, SequenceState& lane, int target,
                          bool may_preempt) {
  const int tokens = chunk_size(builder, entry, lane.computed, target);
  if (tokens <= 0) return false;
  if (!options_.kv_cache && lane.computed == 0) kv_manager_.rewind(lane.seq);
  const int drafts = reserve_drafts(builder, entry, lane, tokens);
  if (drafts == 0 && !reserve(builder, entry, lane, tokens, may_preempt)) return false;
  push_work(builder, entry, lane, tokens, drafts);
  return true;
}

// How many drafts are verified behind the wanted tokens: as many as the step, the request, the free blocks and the spare
// state slots have room for; nobody is preempted for a guess. The blocks are there where the answer is not 0.
int Scheduler::reserve_drafts(const StepBuilder& builder, const RequestState& entry,
                              const SequenceState& lane, int tokens) {
  const int end = lane.computed + tokens;
  if (lane.drafts.empty() || lane.pending > 0 || end != lane.length() || !options_.kv_cache) return 0;
  const auto in_work = [&](const request::EmbeddingSpan& span) {
    return span.begin < end && span.end > lane.computed;
  };
  const std::vector<request::EmbeddingSpan>& spans = entry.request->spans;
  if (std::any_of(spans.begin(), spans.end(), in_work)) return 0;  // the work may be postponed
  const int outputs =
      entry.most_outputs() - (lane.length() - entry.prompt_size());  // one is sampled in any case
  const int want = std::min(
      {static_cast<int>(lane.drafts.size()), outputs - 1, entry.ceiling - end, kv_manager_.most_drafts()});
  const int drafts = std::max(0, builder.budget.fit(tokens + std::max(0, want)) - tokens);
  const kv::Extent extent{
      .begin = lane.computed, .end = end + drafts, .total = end + drafts, .drafts = drafts};
  return drafts > 0 && kv_manager_.reserve(lane.seq, extent) ? drafts : 0;
}

// How many of the wanted tokens go into this step. Where the scheme does not split prompts, all or none,
// except those that even an empty step could not hold.
int Scheduler::chunk_size(const StepBuilder& builder, const RequestState& entry, int begin,
                          int target) const {
  const int want = target - begin;
  const int64_t quota = builder.shared ? std::max<int64_t>(0, entry.client->prompt_quota) : want;
  const int64_t most = std::min<int64_t>(quota, picture_chunk(builder, entry, begin));
  const int fit = builder.budget.fit(static_cast<int>(std::min<int64_t>(want, most)));
  const int chunk = fit == want || options_.scheme.chunked_prefill || want > builder.budget.whole() ? fit : 0;
  return entry.request->spans.empty() ? chunk : whole_spans(builder, entry, begin, chunk);
}

// A chunk that would end inside of a bidirectional span ends before it, or, where it begins with it, behind it: then only
// the hard limit of a step counts, so that a span is not kept waiting by shares of the step that it could never fit in.
int Scheduler::whole_spans(const StepBuilder& builder, const RequestState& entry, int begin,
                           int chunk) const {
  const std::vector<request::EmbeddingSpan>& spans = entry.request->spans;
  const request::EmbeddingSpan* split = split_by(spans, begin + chunk);
  if ((split == nullptr && chunk > 0) || (chunk == 0 && !options_.scheme.chunked_prefill)) return chunk;
  if (split == nullptr) split = split_by(spans, begin + 1);
  if (split == nullptr) return 0;
  if (split->begin > begin) return split->begin - begin;
  return builder.budget.holds(split->end - begin, options_.max_step_tokens) ? split->end - begin : 0;
}

bool Scheduler::reserve(StepBuilder& builder, RequestState& entry, const SequenceState& lane, int tokens,
                        bool may_preempt) {
  const int end = lane.computed + tokens;
  const kv::Extent extent{.begin = lane.computed, .end = end, .total = std::max(end, entry.target(lane))};
  while (!kv_manager_.reserve(lane.seq, extent)) {
    if (!may_preempt || !make_room(builder, entry)) return false;
  }
  return true;
}

void Scheduler::push_work(StepBuilder& builder, RequestState& entry, SequenceState& lane, int tokens,
                          int drafts) {
  const int end = lane.computed + tokens;
  const bool samples = end == lane.length();
  builder.step.work.push_back({lane.seq,
                               lane.computed,
                               end + drafts,
                               sample_from(entry, lane, end),
                               rope_length(entry, lane),
                               std::vector<Token>(lane.drafts.begin(), lane.drafts.begin() + drafts),
                               {}});
  for (const request::EmbeddingSpan& span : entry.request->spans) {
    if (span.begin < end && span.end > lane.computed) builder.step.work.back().spans.push_back(span);
  }
  if (samples) lane.drafts.clear();
  lane.verifying = drafts > 0;
  builder.budget.add(tokens + drafts);
  --builder.decodes_left;
  shares_.charge(*entry.client, tokens + drafts);
  entry.client->prompt_quota -= tokens + drafts;
  lane.computed = samples && !options_.kv_cache ? 0 : end;
  lane.pending += samples;
  ++lane.in_flight;
  entry.last_served = step_number_;
}

int Scheduler::rope_length(const RequestState& entry, const SequenceState& lane) const {
  if (options_.rope.count == 1) return 0;
  const bool kept = options_.rope.outgrown == RopeSets::Outgrown::Kept;
  return kept ? entry.prompt_size() : std::min(lane.length(), entry.ceiling);
}

int Scheduler::sample_from(RequestState& entry, const SequenceState& lane, int end) {
  const int from = std::max({lane.computed, entry.prompt_read, entry.first_prompt_output()});
  const int to = std::min(end, entry.prompt_outputs());
  if (from >= to) return end == lane.length() ? end - 1 : end;
  entry.prompt_read = to;
  return from;
}

// The shared part of the prompt is done: every lane gets a table of its own.
bool Scheduler::fork_sequences(StepBuilder& builder, RequestState& entry) {
  const int shared = entry.prompt_size() - 1;
  const SeqId first = first_active(entry)->seq;
  if (!entry.search && entry.lanes.size() == 1) {
    if (!add_choices(entry)) {
      starved_.push_back(entry.request->id);
      return false;
    }
    for (size_t i = 1; i < entry.lanes.size(); ++i) {
      lanes_[entry.lanes[i].seq] = {&entry, i};
      builder.step.forks.push_back({first, entry.lanes[i].seq, entry.lanes[i].choice});
    }
  }
  for (SequenceState& lane : entry.lanes) {
    if (lane.done || lane.seq == first) continue;
    kv_manager_.fork(first, lane.seq, shared);
    lane.computed = shared;
  }
  entry.forked = true;
  return true;
}

// All or none; none where there is no memory for their tokens.
bool Scheduler::add_choices(RequestState& entry) {
  try {
    for (int choice = 1; choice < entry.num_sequences; ++choice)
      entry.lanes.push_back({.seq = new_seq(), .choice = choice, .tokens = entry.request->prompt});
  } catch (const std::bad_alloc&) {
    entry.lanes.resize(1);
    return false;
  }
  return true;
}

void Scheduler::finish_step(StepBuilder& builder) {
  builder.step.moves = kv_manager_.take_moves();
  builder.step.tables.groups = kv_manager_.groups();
  for (const request::Work& work : builder.step.work) {
    for (int group = 0; group < kv_manager_.groups(); ++group)
      builder.step.tables.add(kv_manager_.table(work.seq, group));
  }
  if (options_.layout == Layout::Padded && !builder.step.work.empty())
    builder.step.padding = builder.budget.rectangle();
  auto next = running_.begin();
  for (size_t left = running_.size(); left > 0; --left) {
    const auto entry = next++;
    if ((*entry)->last_served == step_number_) running_.splice(running_.end(), running_, entry);
  }
}

}  // namespace sluice::sched
