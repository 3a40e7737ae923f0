#include "lab/sim/simulate.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/clock.h"
#include "lab/sim/measured_run.h"

namespace sluice::lab {
namespace {

// One layer whose step takes about a second for every token, whatever the depth.
CostModel slow_model() {
  ModelSheet sheet;
  sheet.spec.vocab = 100;
  sheet.spec.context = 4096;
  sheet.spec.layers.resize(1);
  sheet.matrices = {{.name = "matrix", .elements = 1, .calls = 0}};
  Machine machine;
  machine.read = 1e30;
  machine.multiply = {1e30, 1e30, 1e30};
  machine.overhead = 0;
  machine.gemms = {{DType::BF16, 512, 1, 1.0}, {DType::BF16, 512, 2, 2.0}};
  machine.attention = {1e-30, 1e-30, 1e-30, 1e-30};
  machine.elementwise = 1e-30;
  return CostModel(sheet, machine);
}

SimulateOptions options(int max_seqs, int step_tokens) {
  SimulateOptions out;
  out.engine.scheduler.max_seqs = max_seqs;
  out.engine.scheduler.max_step_tokens = step_tokens;
  out.engine.kv_manager.block_size = 16;
  out.engine.kv_manager.groups = {{.window = 0, .blocks = {1000, 0, 0}}};
  out.engine.queue = {.requests = 1 << 20, .tokens = size_t{1} << 30};
  out.engine.vocab = 100;
  return out;
}

Workload workload(int requests, double rate) {
  WorkloadOptions load;
  load.requests = requests;
  load.rate = rate;
  load.input = *LengthLaw::parse("10", "input-len");
  load.output = *LengthLaw::parse("5", "output-len");
  load.vocab = 100;
  load.first_token = 2;
  return Workload(load);
}

TEST(Simulate, TimesAreThoseOfTheCostModel) {
  const CostModel model = slow_model();
  Workload load = workload(1, 1);
  const SimulateResult result = simulate(model, load, options(4, 64));
  ASSERT_EQ(result.load.records.size(), 1u);
  const LoadRecord& record = result.load.records[0];
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.output, 5);
  EXPECT_NEAR(record.first - record.start, 10, 1e-3);  // a prompt of ten tokens
  EXPECT_NEAR(record.end - record.first, 4, 1e-3);     // then one at a time
  EXPECT_EQ(result.steps, 5u);
}

TEST(Simulate, ReplicasShareTheLoad) {
  const CostModel model = slow_model();
  Workload alone = workload(40, 1), shared = workload(40, 1);
  SimulateOptions one = options(1, 64), four = one;
  four.replicas = 4;
  const SimulateResult first = simulate(model, alone, one), second = simulate(model, shared, four);
  EXPECT_EQ(first.load.records.size(), 40u);
  EXPECT_EQ(second.load.records.size(), 40u);
  EXPECT_NEAR(first.load.duration / second.load.duration, 4, 0.7);
}

TEST(Simulate, AClosedLoopKeepsItsConcurrency) {
  WorkloadOptions load;
  load.requests = 12;
  load.concurrency = 3;
  load.input = *LengthLaw::parse("10", "input-len");
  load.output = *LengthLaw::parse("5-9", "output-len");
  load.vocab = 100;
  load.first_token = 2;
  Workload requests(load);
  const SimulateResult result = simulate(slow_model(), requests, options(8, 64));
  EXPECT_EQ(result.load.records.size(), 12u);
  EXPECT_LE(load_json(result.load).at("max_concurrent_requests").to_number<int>(), 3);
  for (const LoadRecord& record : result.load.records) EXPECT_GT(record.first, record.start);
}

TEST(Simulate, ManyRequestsTakeLittleTime) {
  const CostModel model = slow_model();
  WorkloadOptions load;
  load.requests = 2000;
  load.concurrency = 256;
  load.input = *LengthLaw::parse("256", "input-len");
  load.output = *LengthLaw::parse("128", "output-len");
  load.vocab = 100;
  load.first_token = 2;
  Workload requests(load);
  SimulateOptions many = options(256, 8192);
  many.engine.kv_manager.groups[0].blocks = {20000, 0, 0};
  const SimulateResult result = simulate(model, requests, many);
  EXPECT_EQ(result.load.records.size(), 2000u);
  for (const LoadRecord& record : result.load.records) ASSERT_EQ(record.output, 128);
}

TEST(Simulate, ARunIsTimedByItsStepsAndComparedWithItsSimulation) {
  const CostModel model = slow_model();
  VirtualClock hidden;  // of the steps that are timed: they take no time of their own
  CostExecutor steps(model, hidden);
  SimulateOptions timed = options(4, 64);
  timed.executor = [&](VirtualClock& clock) {
    return std::make_unique<TimedExecutor>(steps, clock, TimeSource::Processor, nullptr);
  };
  Workload first = workload(3, 1), second = workload(3, 1);
  const SimulateResult run = simulate(model, first, timed);
  ASSERT_EQ(run.load.records.size(), 3u);
  EXPECT_EQ(run.load.records[2].output, 5);
  EXPECT_GT(hidden.seconds, 40);  // 30 tokens of prompts and 12 of answers went through the timed executor
  const double ttft = run.load.records[0].first - run.load.records[0].start;
  EXPECT_GT(ttft, 0);
  EXPECT_LT(ttft, 5);  // of the processor's time, not the ten seconds of the cost model
  const json::object simulated = load_json(simulate(model, second, options(4, 64)).load);
  const std::vector<ComparedFigure> same = compare_loads(simulated, simulated);
  ASSERT_EQ(same.size(), 5u);
  for (const ComparedFigure& one : same) EXPECT_EQ(one.error(), 0) << one.name;
  const std::vector<ComparedFigure> other = compare_loads(simulated, load_json(run.load));
  EXPECT_GT(other[1].error(), 1);  // TTFT
  EXPECT_NE(compared_text(other).find("worst: "), std::string::npos);
}

}  // namespace
}  // namespace sluice::lab
