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
// The same of what was sent of late: a request counts half after a minute.
constexpr double kMostRecentShare = 1.1, kRecentSlack = 2;
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

// Of those that prefill for others, or of the rest.
Choice choose_among(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt, bool prefill,
                    std::span<const ReplicaState* const> tried, TimePoint now) {
  const auto fits = [&](const ReplicaState& replica) {
    return prefills(replica) == prefill && usable(replica, tried);
  };
  int64_t running = 0, count = 0;
  double recent = 0;
  for (const ReplicaState& replica : replicas) {
    if (!fits(replica)) continue;
    running += replica.running;
    recent += recent_requests(replica, now);
    ++count;
  }
  if (count == 0) return {};
  const double most = kMostShare * static_cast<double>(running + 1) / static_cast<double>(count) + kSlack;
  const double most_recent = kMostRecentShare * (recent + 1) / static_cast<double>(count) + kRecentSlack;
  const auto has_its_share = [&](const ReplicaState& replica) {
    return static_cast<double>(replica.running + 1) > most || recent_requests(replica, now) + 1 > most_recent;
  };
  Choice best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (ReplicaState& replica : replicas) {
    if (!fits(replica) || has_its_share(replica)) continue;
    const int64_t cached = cached_tokens(replica, prompt, now);
    const int64_t cost = kMissingCost * (prompt.tokens - cached) + replica.prefill_tokens +
                         kRunningCost * replica.running + kWaitingCost * replica.waiting;
    const bool fewer =
        best.replica != nullptr && recent_requests(replica, now) < recent_requests(*best.replica, now);
    if (cost > least || (cost == least && !fewer)) continue;
    least = cost;
    best = {&replica, cached};
  }
  return best;
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
