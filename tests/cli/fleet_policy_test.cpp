#include "cli/lab/fleet_policy.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

// Four replicas on which a token of a prompt takes a millisecond, and conversations of a few popular groups.
lab::SimulateResult run_fleet(FleetPolicy which) {
  lab::ModelSheet sheet;
  sheet.spec.vocab = 1000;
  sheet.spec.context = 4096;
  sheet.spec.layers.resize(1);
  sheet.matrices = {{.name = "matrix", .elements = 1, .calls = 0}};
  lab::Machine machine;
  machine.read = 1e30;
  machine.multiply = {1e30, 1e30, 1e30};
  machine.overhead = 0;
  machine.gemms = {{DType::BF16, 512, 1, 1e-3}, {DType::BF16, 512, 2, 2e-3}};
  machine.attention = {1e-30, 1e-30, 1e-30, 1e-30};
  machine.elementwise = 1e-30;
  lab::WorkloadOptions load;
  load.requests = 400;
  load.rate = 10;
  load.input = *lab::LengthLaw::parse("32", "input-len");
  load.output = *lab::LengthLaw::parse("8", "output-len");
  load.prefix = 256;
  load.prefix_groups = 12;
  load.prefix_skew = 1.2;
  load.turns = 4;
  load.turn_gap = 21;
  load.vocab = 1000;
  load.first_token = 2;
  lab::SimulateOptions options;
  options.replicas = 4;
  options.engine.scheduler.max_seqs = 8;
  options.engine.scheduler.max_step_tokens = 256;
  options.engine.kv_manager.block_size = 16;
  options.engine.kv_manager.groups = {{.window = 0, .blocks = {2000, 0, 0}}};
  options.engine.queue = {.requests = 1 << 20, .tokens = size_t{1} << 30};
  options.engine.vocab = 1000;
  const std::unique_ptr<lab::ReplicaPolicy> policy = make_fleet_policy(which);
  options.policy = policy.get();
  lab::Workload workload(load);
  return lab::simulate(lab::CostModel(sheet, machine), workload, options);
}

double prefilled(const lab::SimulateResult& result) {
  return result.prompt_tokens - result.cached_tokens;
}

TEST(FleetPolicy, TheRoutersPolicyPrefillsLeastAndKeepsTheBalance) {
  const lab::SimulateResult turns = run_fleet(FleetPolicy::RoundRobin), hash = run_fleet(FleetPolicy::Hash),
                            prefix = run_fleet(FleetPolicy::Prefix), fewest = run_fleet(FleetPolicy::Fewest);
  for (const lab::SimulateResult* each : {&turns, &hash, &prefix, &fewest}) {
    ASSERT_EQ(each->load.records.size(), 400u);
    EXPECT_EQ(each->prompt_tokens, turns.prompt_tokens);
    for (const lab::LoadRecord& record : each->load.records) ASSERT_EQ(record.error, "");
  }
  EXPECT_DOUBLE_EQ(turns.imbalance, 1);
  EXPECT_LE(prefix.imbalance, 1.2);
  EXPECT_LT(prefilled(prefix) * 1.2, prefilled(hash));
  EXPECT_LT(prefilled(hash), prefilled(turns));
}

}  // namespace
}  // namespace sluice::cli
