#include "route/policy.h"

#include <algorithm>
#include <limits>

namespace sluice::route {

namespace {

// What a running answer costs a new request, and one that waits, in tokens of prefill.
constexpr int64_t kRunningCost = 32, kWaitingCost = 128;
// No replica gets more requests than this times the mean of all, and a few.
constexpr double kMostShare = 1.2;
constexpr int64_t kSlack = 2;
// How long the blocks of a prompt are believed in before a report has them.
constexpr std::chrono::seconds kBelief{10};
constexpr size_t kMostExpected = 65536;

bool usable(const ReplicaState& replica, std::span<const ReplicaState* const> tried) {
  return replica.healthy && !replica.draining &&
         std::find(tried.begin(), tried.end(), &replica) == tried.end();
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
  for (const ReplicaState& replica : replicas) {
    if (!fits(replica)) continue;
    running += replica.running;
    ++count;
  }
  if (count == 0) return {};
  const double most = kMostShare * static_cast<double>(running + 1) / static_cast<double>(count) + kSlack;
  Choice best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (ReplicaState& replica : replicas) {
    if (!fits(replica) || static_cast<double>(replica.running + 1) > most) continue;
    const int64_t cached = cached_tokens(replica, prompt, now);
    const int64_t cost = prompt.tokens - cached + replica.prefill_tokens + kRunningCost * replica.running +
                         kWaitingCost * replica.waiting;
    const bool fewer = best.replica != nullptr && replica.requests < best.replica->requests;
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

void expect(ReplicaState& replica, const PromptBlocks& prompt, TimePoint now) {
  if (replica.expected.size() + prompt.keys.size() > kMostExpected)
    std::erase_if(replica.expected, [&](const auto& entry) { return entry.second <= now; });
  if (replica.expected.size() > kMostExpected) return;
  for (const uint64_t key : prompt.keys) replica.expected[key] = now + kBelief;
}

}  // namespace sluice::route
