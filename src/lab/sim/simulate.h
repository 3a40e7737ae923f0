// The real scheduler and KV manager in virtual time: an executor that computes nothing, and whose steps take as long as
// the planner's cost model says.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/trace.h"
#include "lab/load/load_report.h"
#include "lab/load/workload.h"
#include "lab/plan/cost_model.h"
#include "sched/executor.h"

namespace sluice::lab {

// A clock that only steps move.
struct VirtualClock {
  double seconds = 0;

  TimePoint now() const;
};

class CostExecutor : public sched::Executor {
 public:
  // Both outlive it.
  CostExecutor(const CostModel& model, VirtualClock& clock) : model_(model), clock_(clock) {}

  void submit(const request::Step& step) override;
  Result<std::vector<request::Outcome>> collect() override;
  Status reset() override;

  double seconds(const request::Step& step);

 private:
  struct Running {
    double seconds = 0;
    std::vector<request::Outcome> outcomes;
  };
  double token_seconds(int64_t tokens, int64_t logit_rows);

  const CostModel& model_;
  VirtualClock& clock_;
  std::deque<Running> running_;
  std::vector<double> by_tokens_, by_rows_;  // what was asked before; below 0: not yet
};

// Who of several replicas gets a request. Calls come in the order of time.
class ReplicaPolicy {
 public:
  virtual ~ReplicaPolicy() = default;
  // Of their engines, in order; none of them runs meanwhile.
  struct Choice {
    size_t replica = 0;
    int64_t missing = 0;  // tokens of the prompt that it has to compute, as far as is known
  };
  virtual Choice choose(std::span<const Token> prompt, std::span<engine::Engine* const> replicas,
                        double now) = 0;
  // The first token of an answer came; the answer ended. `choice` as it was made, without `missing` where that has begun.
  virtual void began(const Choice& /*choice*/) {}
  virtual void ended(const Choice& /*choice*/) {}
};

struct SimulateOptions {
  engine::EngineOptions engine;
  int replicas = 1;                 // of the whole machine
  ReplicaPolicy* policy = nullptr;  // null: a request goes to the replica with the fewest
  size_t kept_arrivals = 10000;     // first requests whose every token's time is kept
  std::function<void(const engine::TracedStep&)> watch = {};  // sees every step; empty: none is recorded
  // What runs a replica's steps and moves its clock; empty: the cost model.
  std::function<std::unique_ptr<sched::Executor>(VirtualClock&)> executor = {};
};

struct SimulateResult {
  LoadResult load;
  uint64_t steps = 0;
  double run_tokens = 0, computed_tokens = 0;
  uint64_t preempted = 0;
  double cached_tokens = 0, prompt_tokens = 0;
  double imbalance = 1;  // requests of the replica that got most, over the mean
};

SimulateResult simulate(const CostModel& model, Workload& workload, const SimulateOptions& options);

}  // namespace sluice::lab
