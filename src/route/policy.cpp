#include "route/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::route {

namespace {

// What a running answer costs a new request, and one that waits, in tokens of prefill that are before it.
constexpr int64_t kRunningCost = 32, kWaitingCost = 128;
// A token that has to be computed costs more than one that is waited for: it makes all that come later wait, and takes a
// place of the KV cache that another replica has given to the same prefix already.
constexpr int64_t kMissingCost = 3;
// No replica gets more requests at once than this times the mean of all, and a few.
constexpr double kMostShare = 1.2;
constexpr int64_t kSlack = 4;
// The same of what was sent of late: a request counts half after a minute. Conversations stay where they are for longer than
// new ones join: to move one costs all of its history, to start one elsewhere at most a prefix that others share.
constexpr double kMostRecentShare = 1.0, kRecentSlack = 1;
constexpr double kMostRecentToStay = 1.3, kSlackToStay = 2;
// What each request of late beyond the mean costs, in tokens of prefill.
constexpr double kRecentCost = 40;
constexpr double kHalfLife = 60;
// How long the blocks of a prompt are believed in before a report has them.
constexpr std::chrono::seconds kBelief{10};
constexpr size_t kMostExpected = 65536;

bool usable(const ReplicaState& replica, std::span<const ReplicaState* const> tried) {
  return replica.healthy && !replica.draining &&
         std::find(tried.begin(), tried.end(), &replica) == tried.end();
}

}  // namespace

namespace {

double recent_requests(const ReplicaState& replica, TimePoint now) {
  return replica.recent * std::exp2(-std::max(0.0, seconds_between(replica.recent_at, now)) / kHalfLife);
}

}  // namespace

int64_t cached_tokens(const ReplicaState& replica, const PromptBlocks& prompt, TimePoint now) {
  int64_t blocks = 0;
  for (const uint64_t key : prompt.keys) {
    const auto expected = replica.expected.find(key);
    const bool coming = expected != replica.expected.end() && expected->second > now;
    if (!coming && !replica.keys.contains(key)) break;
    ++blocks;
  }
  return blocks * replica.block_size;
}

namespace {

bool prefills(const ReplicaState& replica) {
  return replica.role == "prefill";
}

struct Candidate {
  ReplicaState* replica;
  int64_t cached;  // tokens of the prompt
  double recent;
};

// What all that can take a prompt have and get together.
struct Fleet {
  std::vector<Candidate> candidates;
  double mean_running = 0, mean_recent = 0;  // with the request that is to be placed
  int64_t second_cached = 0;                 // the most cached tokens but for the replica with the most
};

// Of those that prefill for others, or of the rest.
Fleet fleet_of(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt, bool prefill,
               std::span<const ReplicaState* const> tried, TimePoint now) {
  Fleet fleet;
  int64_t most = 0;
  double running = 1, recent = 1;
  for (ReplicaState& replica : replicas) {
    if (prefills(replica) != prefill || !usable(replica, tried)) continue;
    const int64_t cached = cached_tokens(replica, prompt, now);
    fleet.candidates.push_back({&replica, cached, recent_requests(replica, now)});
    running += static_cast<double>(replica.running);
    recent += fleet.candidates.back().recent;
    fleet.second_cached = std::max(fleet.second_cached, std::min(most, cached));
    most = std::max(most, cached);
  }
  const double count = std::max<double>(1, static_cast<double>(fleet.candidates.size()));
  fleet.mean_running = running / count;
  fleet.mean_recent = recent / count;
  return fleet;
}

bool has_its_share(const Candidate& candidate, const Fleet& fleet) {
  if (static_cast<double>(candidate.replica->running + 1) > kMostShare * fleet.mean_running + kSlack)
    return true;
  const bool stays = candidate.cached > fleet.second_cached;  // elsewhere more would have to be computed
  const double most = stays ? kMostRecentToStay * fleet.mean_recent + kSlackToStay
                            : kMostRecentShare * fleet.mean_recent + kRecentSlack;
  return candidate.recent + 1 > most;
}

// `limited`: without those that have their share.
Choice cheapest(const Fleet& fleet, const PromptBlocks& prompt, bool limited) {
  Choice best;
  double least = std::numeric_limits<double>::infinity(), least_recent = 0;
  for (const Candidate& candidate : fleet.candidates) {
    if (limited && has_its_share(candidate, fleet)) continue;
    const ReplicaState& replica = *candidate.replica;
    const int64_t tokens = kMissingCost * (prompt.tokens - candidate.cached) + replica.prefill_tokens +
                           kRunningCost * replica.running + kWaitingCost * replica.waiting;
    const double cost = static_cast<double>(tokens) + kRecentCost * (candidate.recent - fleet.mean_recent);
    if (cost > least || (cost == least && candidate.recent >= least_recent)) continue;
    least = cost;
    least_recent = candidate.recent;
    best = {candidate.replica, candidate.cached};
  }
  return best;
}

// One that is busy and one that got much of late may be all there are: the limits then hold nobody.
Choice choose_among(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt, bool prefill,
                    std::span<const ReplicaState* const> tried, TimePoint now) {
  const Fleet fleet = fleet_of(replicas, prompt, prefill, tried, now);
  const Choice best = cheapest(fleet, prompt, true);
  return best.replica != nullptr ? best : cheapest(fleet, prompt, false);
}

}  // namespace

Choice choose(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt,
              std::span<const ReplicaState* const> tried, TimePoint now) {
  const Choice best = choose_among(replicas, prompt, false, tried, now);
  return best.replica != nullptr ? best : choose_among(replicas, prompt, true, tried, now);
}

Choice choose_prefill(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt, TimePoint now) {
  return choose_among(replicas, prompt, true, {}, now);
}

void count_request(ReplicaState& replica, TimePoint now) {
  replica.recent = recent_requests(replica, now) + 1;
  replica.recent_at = now;
  ++replica.requests;
}

void join(std::vector<ReplicaState>& replicas, ReplicaState& joining, TimePoint now) {
  double recent = 0, count = 0;
  for (const ReplicaState& replica : replicas) {
    if (&replica == &joining || !replica.healthy) continue;
    recent += recent_requests(replica, now);
    ++count;
  }
  joining.recent = count > 0 ? recent / count : 0;
  joining.recent_at = now;
}

void expect(ReplicaState& replica, const PromptBlocks& prompt, TimePoint now) {
  if (replica.expected.size() + prompt.keys.size() > kMostExpected)
    std::erase_if(replica.expected, [&](const auto& entry) { return entry.second <= now; });
  if (replica.expected.size() > kMostExpected) return;
  for (const uint64_t key : prompt.keys) replica.expected[key] = now + kBelief;
}

}  // namespace sluice::route
