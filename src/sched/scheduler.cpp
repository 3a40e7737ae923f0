#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice::sched {

Scheduler::Scheduler(SchedulerOptions options, kv::KvManager& kv_manager)
    : options_(std::move(options)), kv_manager_(kv_manager) {
  SLUICE_CHECK(validate(options_).ok());
}

Scheduler::~Scheduler() {
  clear();
}

kv::Demand Scheduler::demand(const request::Request& request) const {
  const int prompt = static_cast<int>(request.prompt.size());
  const int sequences = request::sequence_count(request), total = prompt + request::max_tokens(request);
  return {.shared = sequences > 1 && options_.kv_cache ? prompt - 1 : 0,
          .total = total,
          .sequences = sequences,
          .chunk = std::min(options_.max_step_tokens, total)};
}

Status Scheduler::admissible(const request::Request& request) const {
  const auto refuse = [](std::string message) { return Error{ErrorCode::LimitExceeded, std::move(message)}; };
  if (request.prompt.empty()) return Error{ErrorCode::InvalidArgument, "the prompt has no tokens"};
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int generated = request::max_tokens(request);
  const std::string wanted = request.pooling() != nullptr
                                 ? fmt::format("{} prompt tokens", prompt)
                                 : fmt::format("{} prompt tokens and {} to generate", prompt, generated);
  if (prompt + generated > options_.max_context) {
    return refuse(fmt::format("{} are over the context of {} tokens", wanted, options_.max_context));
  }
  const int sequences = request::sequence_count(request);
  if (sequences > options_.max_seqs) {
    return refuse(fmt::format("{} choices or beams at once are over the limit of {} sequences", sequences,
                              options_.max_seqs));
  }
  if (sequences > options_.max_step_tokens) {
    return refuse(fmt::format("{} choices or beams at once are over the limit of {} tokens in a step",
                              sequences, options_.max_step_tokens));
  }
  if (Status input = request::validate_input(request); !input) return input;
  // Beside a token of every other sequence a step must hold a span that cannot be split.
  const int longest = options_.layout == Layout::Padded ? options_.max_step_tokens / options_.max_seqs
                                                        : options_.max_step_tokens - options_.max_seqs;
  for (const request::EmbeddingSpan& span : request.spans) {
    if (span.bidirectional && span.end - span.begin > longest)
      return refuse(
          fmt::format("a span of {} embeddings that see each other is over the limit of {} in a step",
                      span.end - span.begin, longest));
  }
  const kv::Demand need = demand(request);
  if (kv_manager_.could_ever_hold(need)) return {};
  for (int group = 0; group < kv_manager_.groups(); ++group) {
    const int blocks = kv_manager_.peak_blocks(group, need), capacity = kv_manager_.capacity(group);
    if (blocks <= capacity) continue;
    const int size = kv_manager_.options().block_size;
    return refuse(fmt::format("{}, {} times, need {} KV blocks of {} tokens; the cache has {} ({} tokens)",
                              wanted, sequences, blocks, size, capacity, int64_t{capacity} * size));
  }
  return {};
}

void Scheduler::add(std::shared_ptr<const request::Request> request) {
  const request::RequestId id = request->id;
  auto entry = std::make_unique<RequestState>();
  entry->num_sequences = request::sequence_count(*request);
  entry->search = request::is_search(*request);
  entry->waits = request->pooling() == nullptr && request::needs_host_sampling(request->sampling());
  entry->request = std::move(request);
  choose_rope_set(*entry, entry->prompt_size());
  entry->group = new_seq();
  entry->lanes.push_back({.seq = entry->group});
  lanes_[entry->group] = {entry.get(), 0};
  entry->client = &shares_.join(entry->request->client, entry->request->weight);
  waiting_.push(*entry, Seconds(cost_.seconds(entry->prompt_size())));
  SLUICE_CHECK(entries_.emplace(id, std::move(entry)).second);
}

void Scheduler::choose_rope_set(RequestState& entry, int length) const {
  entry.rope_set = options_.rope.of(length);
  const bool grows = options_.rope.outgrown == RopeSets::Outgrown::Recomputed && options_.rope.count > 1;
  entry.ceiling = grows && entry.rope_set == 0 ? options_.rope.limit : kNoCeiling;
}

RequestState* Scheduler::find(request::RequestId request) {
  const auto found = entries_.find(request);
  return found == entries_.end() ? nullptr : found->second.get();
}

std::vector<SeqId> Scheduler::resident_lanes(const RequestState& entry) const {
  std::vector<SeqId> seqs;
  for (const SequenceState& lane : entry.lanes) {
    if (!lane.done && kv_manager_.contains(lane.seq)) seqs.push_back(lane.seq);
  }
  return seqs;
}

SequenceState* Scheduler::first_active(RequestState& entry) {
  const auto live =
      std::find_if(entry.lanes.begin(), entry.lanes.end(), [](const SequenceState& l) { return !l.done; });
  return live == entry.lanes.end() ? nullptr : &*live;
}

void Scheduler::release(const SequenceState& lane) {
  if (kv_manager_.contains(lane.seq)) kv_manager_.release(lane.seq);
}

void Scheduler::end_lane(RequestState& entry, SequenceState& lane) {
  release(lane);
  lane.done = true;
  if (lane.seq != entry.group || !entry.search) lanes_.erase(lane.seq);
  if (entry.known && !entry.search) retire_.push_back(lane.seq);
  if (entry.phase == Phase::Running) set_granted(entry, std::min(entry.granted, entry.live()));
}

void Scheduler::leave_queue(RequestState& entry) {
  switch (entry.phase) {
    case Phase::Waiting:
      waiting_.remove(entry);
      break;
    case Phase::Running:
      running_.erase(entry.place);
      set_granted(entry, 0);
      break;
    case Phase::Dropped:
    case Phase::Swapped:
      waiting_.remove(entry);
      preempted_.erase({-entry.request->priority, entry.order});
      break;
  }
}

void Scheduler::erase(RequestState& entry) {
  for (SequenceState& lane : entry.lanes) {
    if (!lane.done) end_lane(entry, lane);
  }
  if (entry.known && entry.search) retire_.push_back(entry.group);
  std::erase_if(moved_, [&](const request::Lanes& lanes) { return lanes.group == entry.group; });
  lanes_.erase(entry.group);
  leave_queue(entry);
  shares_.leave(*entry.client);
  if (running_.empty() && preempted_.empty()) batch_rows_ = 0;
  entries_.erase(entry.request->id);
}

bool Scheduler::cancel(request::RequestId request) {
  RequestState* entry = find(request);
  if (entry == nullptr) return false;
  erase(*entry);
  return true;
}

bool Scheduler::finish(request::RequestId request, int choice, bool* ended) {
  *ended = false;
  RequestState* entry = find(request);
  if (entry == nullptr) return false;
  const auto lane = std::find_if(entry->lanes.begin(), entry->lanes.end(), [&](const SequenceState& l) {
    return !l.done && (entry->search || l.choice == choice);
  });
  if (lane == entry->lanes.end()) return false;
  if (!entry->search) end_lane(*entry, *lane);
  *ended = entry->search || first_active(*entry) == nullptr;
  if (*ended) erase(*entry);
  return true;
}

std::vector<request::RequestId> Scheduler::clear() {
  std::vector<request::RequestId> ids;
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  for (const request::RequestId id : ids) cancel(id);
  retire_.clear();
  moved_.clear();
  return ids;
}

std::optional<TimePoint> Scheduler::wake_at() const {
  const Seconds max_batch_wait = options_.scheme.max_batch_wait;
  if (waiting_.empty() || !running_.empty() || !preempted_.empty() || max_batch_wait == kForever)
    return std::nullopt;
  return waiting_.oldest().request->arrival + std::chrono::duration_cast<Clock::duration>(max_batch_wait);
}

RequestView Scheduler::view_of(const RequestState& entry) {
  RequestView view{.id = entry.request->id,
                   .client = entry.request->client,
                   .phase = entry.phase,
                   .arrival = entry.request->arrival,
                   .prompt_tokens = entry.prompt_size(),
                   .preemptions = entry.preemptions,
                   .cached = entry.cached};
  for (const SequenceState& lane : entry.lanes) {
    view.generated += entry.known_tokens(lane) - entry.prompt_size();
    if (!lane.done) view.lanes.push_back({lane.seq, entry.known_tokens(lane), lane.computed});
  }
  return view;
}

bool Scheduler::speculates() const {
  if (options_.stages > 1) return false;  // steps have different sequences
  return std::any_of(running_.begin(), running_.end(), [](const RequestState* entry) {
    return std::any_of(entry->lanes.begin(), entry->lanes.end(), [](const SequenceState& lane) {
      return !lane.done && (lane.guessed || lane.verifying);
    });
  });
}

SequenceOwner Scheduler::owner_of(SeqId seq) const {
  const RequestState& entry = *lanes_.at(seq).entry;
  return {entry.request->id, entry.prompt_size()};
}

void Scheduler::for_each(size_t waiting, const std::function<void(const RequestView&)>& visit) const {
  for (const RequestState* entry : running_) visit(view_of(*entry));
  for (const auto& [place, entry] : preempted_) visit(view_of(*entry));
  waiting_.for_oldest(waiting, [&](const RequestState& entry) { visit(view_of(entry)); });
}

}  // namespace sluice::sched
