// The same load through the simulator and through the model itself: figures of both beside each other.
#pragma once

#include <string>
#include <vector>

#include "lab/plan/calibrate.h"
#include "lab/sim/simulate.h"
#include "lab/stopwatch.h"
#include "runtime/model_executor.h"

namespace sluice::lab {

// Runs steps on a model and moves a virtual clock by what they take, so that requests come in that time as well: with the
// processor's time a run on a busy machine is that on an idle one.
class TimedExecutor : public sched::Executor {
 public:
  // All outlive it. `calibration` not null: it takes a sample every few seconds, which no clock counts.
  TimedExecutor(sched::Executor& model, VirtualClock& clock, TimeSource time, Calibration* calibration)
      : model_(model), clock_(clock), time_(time), calibration_(calibration) {}

  void submit(const request::Step& step) override;
  Result<std::vector<request::Outcome>> collect() override;
  Status reset() override { return model_.reset(); }

 private:
  sched::Executor& model_;
  VirtualClock& clock_;
  TimeSource time_;
  Calibration* calibration_;
  double sampled_at_ = -1e9;
};

struct ComparedFigure {
  std::string name, unit;
  double simulated = 0, measured = 0;

  double error() const { return measured > 0 ? simulated / measured - 1 : 0; }
};

// Throughput, and TTFT and TPOT at p50 and p99, of two load_json() reports.
std::vector<ComparedFigure> compare_loads(const json::object& simulated, const json::object& measured);
std::string compared_text(const std::vector<ComparedFigure>& figures);

}  // namespace sluice::lab
