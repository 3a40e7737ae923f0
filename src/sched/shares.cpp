// Scheduler::plan: what the clients with work share, and what is given back.
#include <algorithm>
#include <limits>
#include <utility>

#include "sched/scheduler.h"

namespace sluice::sched {

namespace {

// Tokens below which an answer belongs to the burst that its prompt came with.
constexpr int kNewAnswerTokens = 4;

bool is_new_answer(const RequestState& entry) {
  return entry.known_tokens(entry.lanes.front()) - entry.prompt_size() < kNewAnswerTokens;
}

}  // namespace

using Client = ClientShares::Client;

void Scheduler::set_granted(RequestState& entry, int sequences) {
  num_running_sequences_ += sequences - entry.granted;
  entry.client->sequences += sequences - entry.granted;
  entry.granted = sequences;
}

// While more than one client has work, no step takes longer than any of them should wait for the next. A client alone may
// have steps of twice that: whoever comes waits for the one that runs. Stages share the tokens of a step: a prompt is in
// several of them at once.
int Scheduler::step_limit() const {
  const bool cuts = options_.scheme.continuous_admission && options_.scheme.chunked_prefill &&
                    options_.layout == Layout::Packed;
  if (!cuts) return options_.max_step_tokens;
  const int most = std::max(options_.max_step_tokens / options_.stages,
                            std::min(options_.max_step_tokens, options_.max_seqs));  // a search in one step
  const double longest = options_.contended_step.count() * (shares_.contended() ? 1 : 2);
  const int64_t fitting = std::min(cost_.tokens_within(longest), tokens_within_tbt());
  const int least = std::min({kLeastStepTokens, tbt_of_batch().least_prompt_tokens, most});
  return static_cast<int>(std::clamp<int64_t>(fitting, least, most));
}

TbtOfBatch Scheduler::tbt_of_batch() const {
  const auto* by_batch = std::get_if<TbtOfBatch>(&options_.target_tbt);
  return by_batch != nullptr ? *by_batch : TbtOfBatch();
}

// Tokens of a step that does not keep running answers waiting for longer than options_.target_tbt. By TbtOfBatch that holds
// where few prompts join many answers; a burst of prompts, the last of it beside answers that have just begun too, is served
// in steps that the device runs at full speed.
int64_t Scheduler::tokens_within_tbt() const {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  if (std::holds_alternative<TbtAny>(options_.target_tbt)) return kAny;
  int64_t sampling = 0, prompts = 0;
  for (const RequestState* entry : running_) {
    const bool prefilling = is_prefilling(*entry);
    prompts += (prefilling && !is_rationed(*entry)) || is_new_answer(*entry);
    sampling += prefilling ? 0 : entry->granted;
  }
  if (sampling == 0) return kAny;
  const int64_t even = options_.even_step_tokens;
  int64_t least = sampling + tbt_of_batch().least_prompt_tokens;
  double longest = 0;
  if (const auto* given = std::get_if<Seconds>(&options_.target_tbt)) {
    longest = given->count();
  } else {
    prompts += std::min<int64_t>(static_cast<int64_t>(waiting_.size()),
                                 std::max(0, options_.max_seqs - num_running_sequences_));
    const bool burst = tbt_of_batch().bursts && prompts > std::max(kFewPrompts, sampling / kAnswersOfAPrompt);
    if (burst && even == 0) return kAny;
    if (burst) least = std::max(least, even);
    longest = std::max(kUnnoticedTbt.count(),
                       tbt_of_batch().stretch * cost_.seconds(static_cast<double>(sampling)));
  }
  int64_t fitting = cost_.tokens_within(longest);
  if (even > 0 && fitting > even) fitting -= fitting % even;
  return std::max(fitting, least);
}

void Scheduler::claim(Client& client, int64_t demand, std::vector<Client*>& claimants) {
  if (std::exchange(client.claimed, step_number_) != step_number_) {
    client.demand = client.prompt_quota = 0;
    claimants.push_back(&client);
  }
  client.demand += demand;
}

// Parts the step's tokens between the clients by max-min fairness: each has a quota. The next requests of those that wait
// count with their prompts, and their part, up to half of the step, is kept from those that run already.
void Scheduler::part_step(StepBuilder& builder) {
  std::vector<Client*> claimants;
  size_t widest = 1;  // lanes that sample in one step or not at all
  for (const RequestState* entry : running_) {
    ++counters_.examined;
    if (entry->search) widest = std::max(widest, entry->lanes.size());
    int64_t want = is_prefilling(*entry) ? 0 : entry->granted;
    for (const SequenceState& lane : entry->lanes)
      if (want < entry->granted && !lane.done) want += std::max(0, entry->target(lane) - lane.computed);
    claim(*entry->client, want, claimants);
  }
  std::vector<std::pair<Client*, int64_t>> next;  // with the tokens that could start
  for (Client* client : shares_.queued()) {
    if (next.size() == static_cast<size_t>(std::min(kMostPassed, options_.max_seqs - num_running_sequences_)))
      break;
    if (const RequestState* entry = waiting_.front(*client)) next.emplace_back(client, entry->prompt_size());
  }
  for (const auto& [client, tokens] : next) claim(*client, tokens, claimants);
  std::vector<Claim> claims;
  claims.reserve(claimants.size());
  for (const Client* client : claimants) claims.push_back({client->weight, client->demand});
  const int limit = builder.budget.limit();
  const double level = fair_level(std::move(claims), limit);
  for (Client* client : claimants)
    client->prompt_quota = static_cast<int64_t>(std::clamp(level * client->weight, 1.0, 1e9));
  int64_t kept = 0;
  for (const auto& [client, tokens] : next) kept += std::min(tokens, client->prompt_quota);
  kept = std::min({kept, int64_t{limit / 2}, std::max<int64_t>(0, limit - static_cast<int64_t>(widest))});
  builder.budget = {options_.layout, limit - static_cast<int>(kept), options_.max_seqs};
  builder.shared = true;
}

template <class Part>
RequestState* Scheduler::lender_to(const Client& owed, Part part) {
  RequestState* best = nullptr;
  const auto excess = [&](const RequestState& entry) {
    return std::pair(part(*entry.client) / entry.client->weight, entry.order);
  };
  for (RequestState* entry : running_) {
    ++counters_.examined;
    const Client& client = *entry->client;
    const bool borrows = &client != &owed && part(client) > shares_.share(client, 1) &&
                         2 * shares_.usage(owed) < shares_.usage(client);
    const bool pauses = entry->granted > 1 && !entry->search;
    const bool moving = entry->search && entry->lanes.front().pending > 0;
    if (!borrows || moving || (entry->promised && !pauses)) continue;
    if (best == nullptr || excess(*entry) > excess(*best)) best = entry;
  }
  return best;
}

// A choice pauses where the request has several, which costs nothing; else it is preempted.
bool Scheduler::take_back_seat(StepBuilder& builder, const Client& owed) {
  RequestState* lender =
      lender_to(owed, [&](const Client& c) { return double{1} * c.sequences / options_.max_seqs; });
  if (lender == nullptr) return false;
  ++counters_.given_back;
  if (lender->granted > 1 && !lender->search) {
    set_granted(*lender, lender->granted - 1);
  } else {
    preempt(builder, *lender);
  }
  return true;
}

// Blocks shared by several sequences count for each of them.
void Scheduler::count_blocks() {
  for (RequestState* entry : running_) entry->client->kv_part = 0;
  for (RequestState* entry : running_) {
    double most = 0;
    for (int group = 0; group < kv_manager_.groups(); ++group) {
      size_t blocks = 0;
      for (const SequenceState& lane : entry->lanes)
        if (!lane.done && kv_manager_.contains(lane.seq)) blocks += kv_manager_.table(lane.seq, group).size();
      most = std::max(most, static_cast<double>(blocks) / std::max(1, kv_manager_.capacity(group)));
    }
    entry->client->kv_part += most;
  }
}

bool Scheduler::lacks_blocks(const RequestState& entry) const {
  for (int group = 0; group < kv_manager_.groups(); ++group) {
    const int window = kv_manager_.options().groups[static_cast<size_t>(group)].window;
    const SequenceState& lane = entry.lanes.front();
    const int tokens = entry.known_tokens(lane) + lane.pending;
    const int seen = window == 0 ? tokens : std::min(tokens, window + options_.max_step_tokens);
    const int need = std::min(kv_manager_.blocks_for(seen), kv_manager_.capacity(group));
    if (kv_manager_.available(group) < need + headroom(group, 1)) return true;
  }
  return false;
}

bool Scheduler::take_back_blocks(StepBuilder& builder, const RequestState& entry) {
  bool any = false;
  for (int count = 0; count < kMostPassed && lacks_blocks(entry); ++count) {
    count_blocks();
    RequestState* lender = lender_to(*entry.client, [](const Client& c) { return c.kv_part; });
    if (lender == nullptr || lender->promised) break;
    ++counters_.given_back;
    preempt(builder, *lender);
    any = true;
  }
  return any;
}

// Clients under their share of the sequences whose next request finds no room get it from those that borrow, if they also
// have had less than half of what these had over the last 10 s: so it is given back once, not to and fro.
void Scheduler::take_back(StepBuilder& builder, TimePoint now) {
  const bool may_join = batch_may_start(now);
  std::vector<Client*> heads;
  for (Client* client : shares_.queued()) {
    if (heads.size() == static_cast<size_t>(kMostPassed)) break;
    heads.push_back(client);
  }
  int free = options_.max_seqs - num_running_sequences_;
  for (const Client* client : heads) {
    if (client->sequences + 1 > std::max(1.0, shares_.share(*client, options_.max_seqs))) continue;
    RequestState* next = waiting_.front(*client, may_join);
    if (next == nullptr) continue;
    const bool seat = free <= 0 && take_back_seat(builder, *client);
    if (free <= 0 && !seat) continue;
    free -= !seat;
    if (take_back_blocks(builder, *next) || seat) builder.owed.push_back(next);
  }
  for (RequestState* entry : running_) {
    const Client& client = *entry->client;
    if (entry->granted >= entry->live() || client.sequences + 1 > shares_.share(client, options_.max_seqs))
      continue;
    if (free <= 0 && take_back_seat(builder, client)) set_granted(*entry, entry->granted + 1);
    break;  // one in a step
  }
  builder.preempted = false;  // nobody lacks blocks: what was given back is to be taken
}

// Choices that pause go on where sequences are left over.
void Scheduler::grow_grants() {
  int free = options_.max_seqs - num_running_sequences_;
  for (auto entry = running_.begin(); free > 0 && entry != running_.end(); ++entry) {
    const int more = std::min(free, (*entry)->live() - (*entry)->granted);
    if (more <= 0) continue;
    set_granted(**entry, (*entry)->granted + more);
    free -= more;
  }
}

// Until a sequence ends for the last of these requests, where each of those that run goes on to its limit of tokens.
double Scheduler::seat_wait(const Client* client, const WaitingQueue::Ahead& ahead) const {
  const int free = options_.max_seqs - num_running_sequences_;
  const bool entitled = client == nullptr || client->requests == 0 ||
                        client->sequences + ahead.requests + 1 <= shares_.share(*client, options_.max_seqs);
  if (ahead.requests < free || entitled) return 0;
  std::vector<int> left;
  for (const RequestState* entry : running_) {
    const auto generated = static_cast<int>(entry->lanes.front().tokens.size()) - entry->prompt_size();
    left.insert(left.end(), static_cast<size_t>(entry->granted),
                std::max(0, entry->most_outputs() - generated));
  }
  if (left.empty()) return 0;
  const auto nth =
      left.begin() + std::min<ptrdiff_t>(ahead.requests - std::max(0, free), std::ssize(left) - 1);
  std::nth_element(left.begin(), nth, left.end());
  return *nth * cost_.seconds(num_running_sequences_);
}

// Prompts before it of its own client, and of the others as much as their shares allow, at the measured pace of full steps;
// and the wait for a sequence to end where the client has its share of them.
Seconds Scheduler::time_to_first_token(const request::Request& request) const {
  if (!cost_.known()) return Seconds{0};
  const Client* client = shares_.find(request.client);
  WaitingQueue::Ahead ahead;
  if (client != nullptr)
    ahead = waiting_.ahead_of(*client, request.priority, request.first_token_by.value_or(TimePoint::max()));
  double own = static_cast<double>(ahead.tokens) + static_cast<double>(request.prompt.size());
  double others = static_cast<double>(waiting_.tokens() - ahead.tokens);
  for (const RequestState* entry : running_) {
    const SequenceState& lane = entry->lanes.front();
    const int left = std::max(0, entry->target(lane) - lane.computed - 1);
    (entry->client == client ? own : others) += left;
  }
  const double part = shares_.part_of(client, request.weight);
  const double tokens = own + std::min(others, own * (1 - part) / part);
  const double step = step_limit(), prompts = std::max(1.0, step - num_running_sequences_);
  const double full_steps = std::max(0.0, tokens / prompts - 1);
  const double last = cost_.seconds(std::min(step, tokens + num_running_sequences_));
  return Seconds(seat_wait(client, ahead) + full_steps * cost_.seconds(step) + last);
}

std::optional<request::RequestId> Scheduler::youngest_waiting(const std::string& name) const {
  const Client* client = shares_.find(name);
  const RequestState* entry = client == nullptr ? nullptr : waiting_.youngest(*client);
  return entry == nullptr ? std::nullopt : std::optional(entry->request->id);
}

}  // namespace sluice::sched
