#include "cli/lab/fleet_policy.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "route/policy.h"
#include "route/prompt_reader.h"

namespace sluice::cli {

namespace {

using lab::ReplicaPolicy;

class ByTurns : public ReplicaPolicy {
 public:
  Choice choose(std::span<const Token> /*prompt*/, std::span<engine::Engine* const> replicas,
                double /*now*/) override {
    return {next_++ % replicas.size(), 0};
  }

 private:
  size_t next_ = 0;
};

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// deploy/haproxy: a ring by the first 512 bytes of a body, and no replica above 1.5 times the mean load.
class ByHash : public ReplicaPolicy {
 public:
  Choice choose(std::span<const Token> prompt, std::span<engine::Engine* const> replicas,
                double /*now*/) override {
    if (ring_.empty()) make_ring(replicas.size());
    uint64_t hash = 0;
    for (const Token token : prompt.first(std::min(prompt.size(), kHashed)))
      hash = mixed(hash * 31 + static_cast<uint64_t>(token) + 1);
    const double most = kMostLoad * static_cast<double>(all_ + 1) / static_cast<double>(replicas.size());
    auto at = std::lower_bound(ring_.begin(), ring_.end(), std::pair<uint64_t, size_t>{hash, 0});
    for (size_t i = 0; i < ring_.size(); ++i, ++at) {
      if (at == ring_.end()) at = ring_.begin();
      if (static_cast<double>(running_[at->second] + 1) <= std::max(1.0, most)) break;
    }
    if (at == ring_.end()) at = ring_.begin();
    ++running_[at->second];
    ++all_;
    return {at->second, 0};
  }
  void ended(const Choice& choice) override {
    --running_[choice.replica];
    --all_;
  }

 private:
  static constexpr size_t kHashed = 128;  // tokens of 512 bytes
  static constexpr int kPoints = 100;     // of a replica
  static constexpr double kMostLoad = 1.5;

  void make_ring(size_t replicas) {
    running_.resize(replicas);
    for (size_t i = 0; i < replicas; ++i)
      for (uint64_t point = 0; point < kPoints; ++point) ring_.emplace_back(mixed(mixed(i + 1) + point), i);
    std::sort(ring_.begin(), ring_.end());
  }

  std::vector<std::pair<uint64_t, size_t>> ring_;
  std::vector<int64_t> running_;
  int64_t all_ = 0;
};

// The router's own policy over what the replicas publish, as old as a report may be.
class ByPrefix : public ReplicaPolicy {
 public:
  Choice choose(std::span<const Token> prompt, std::span<engine::Engine* const> replicas,
                double now) override {
    if (states_.empty()) meet(replicas);
    for (size_t i = 0; i < replicas.size(); ++i) read_report(i, *replicas[i], now);
    const TimePoint at = TimePoint{} + std::chrono::duration_cast<Clock::duration>(Seconds(now));
    const route::PromptBlocks blocks = route::blocks_of({{prompt.begin(), prompt.end()}, ""}, states_[0], "");
    const route::Choice best = route::choose(states_, blocks, {}, at);
    SLUICE_CHECK(best.replica != nullptr);
    const Choice out{static_cast<size_t>(best.replica - states_.data()), blocks.tokens - best.cached};
    route::count_request(*best.replica, at);
    route::expect(*best.replica, blocks, at);
    ++best.replica->running;
    best.replica->prefill_tokens += out.missing;
    return out;
  }
  void began(const Choice& choice) override { states_[choice.replica].prefill_tokens -= choice.missing; }
  void ended(const Choice& choice) override {
    began(choice);
    --states_[choice.replica].running;
  }

 private:
  static constexpr double kReportInterval = 0.25;  // as route::RouteOptions::poll_interval

  void meet(std::span<engine::Engine* const> replicas) {
    states_.resize(replicas.size());
    reported_.assign(replicas.size(), -kReportInterval);
    for (size_t i = 0; i < replicas.size(); ++i) {
      states_[i].healthy = true;
      states_[i].block_size = replicas[i]->kv_options().block_size;
      states_[i].kv_model = replicas[i]->kv_options().model;
    }
  }

  void read_report(size_t index, engine::Engine& replica, double now) {
    if (now - reported_[index] < kReportInterval) return;
    reported_[index] = now;
    route::ReplicaState& state = states_[index];
    state.waiting = static_cast<int64_t>(replica.metrics().waiting.value());
    const auto published = replica.published_keys();
    if (!published || published->version == state.version) return;
    state.version = published->version;
    state.keys = {published->keys.begin(), published->keys.end()};
  }

  std::vector<route::ReplicaState> states_;
  std::vector<double> reported_;  // when
};

}  // namespace

std::unique_ptr<lab::ReplicaPolicy> make_fleet_policy(FleetPolicy policy) {
  switch (policy) {
    case FleetPolicy::Fewest:
      return nullptr;
    case FleetPolicy::RoundRobin:
      return std::make_unique<ByTurns>();
    case FleetPolicy::Hash:
      return std::make_unique<ByHash>();
    case FleetPolicy::Prefix:
      return std::make_unique<ByPrefix>();
  }
  return nullptr;
}

}  // namespace sluice::cli
