// Random workloads on the fake executor: whatever is asked, cancelled or broken, every request gets exactly
// one last event, gets the tokens it would get alone, and leaves nothing behind.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>

#include "tests/engine/workload.h"

namespace sluice::sim {
namespace {

rc::Gen<World> any_world() {
  using rc::gen::arbitrary;
  using rc::gen::inRange;
  return rc::gen::build<World>(
      rc::gen::set(&World::seed, arbitrary<uint64_t>()), rc::gen::set(&World::scheme, inRange(0, 4)),
      rc::gen::set(&World::padded, arbitrary<bool>()), rc::gen::set(&World::separate, arbitrary<bool>()),
      rc::gen::set(&World::preallocate, arbitrary<bool>()), rc::gen::set(&World::swap, arbitrary<bool>()),
      rc::gen::set(&World::prefix_cache, arbitrary<bool>()),
      rc::gen::set(&World::windowed, arbitrary<bool>()), rc::gen::set(&World::faults, arbitrary<bool>()),
      rc::gen::set(&World::searches, arbitrary<bool>()),
      rc::gen::set(&World::kv_cache, rc::gen::weightedElement<bool>({{9, true}, {1, false}})),
      rc::gen::set(&World::depth, inRange(1, 3)),
      rc::gen::set(&World::block_size, rc::gen::element(1, 2, 4, 8)),
      rc::gen::set(&World::blocks, inRange(3, 40)), rc::gen::set(&World::host_blocks, inRange(0, 12)),
      rc::gen::set(&World::disk_blocks, inRange(0, 12)), rc::gen::set(&World::max_seqs, inRange(1, 7)),
      rc::gen::set(&World::budget, inRange(1, 40)), rc::gen::set(&World::requests, inRange(1, 30)),
      rc::gen::set(&World::rope_sets, rc::gen::element(1, 2, 50)),
      rc::gen::set(&World::rope_limit, inRange(1, 40)), rc::gen::set(&World::rope_kept, arbitrary<bool>()),
      rc::gen::set(&World::drafts, rc::gen::element(0, 0, 1, 3, 9)));
}

// RC_PARAMS="max_success=10000" runs more of them, seed=... the same again.
TEST(Simulation, HoldsItsInvariants) {
  setenv("RC_PARAMS", "max_success=400", 0);
  EXPECT_TRUE(rc::check("every workload", [] {
    const World world = *any_world();
    const std::string complaint = Simulation(world).run();
    if (!complaint.empty()) RC_FAIL(complaint);
  }));
}

// The workload above would hold as well if no draft were ever verified.
TEST(Simulation, VerifiesDrafts) {
  Simulation world({.seed = 7, .blocks = 60, .budget = 64, .requests = 30, .drafts = 3});
  EXPECT_EQ(world.run(), "");
  EXPECT_GT(world.executor().accepted(), 50);
  EXPECT_GT(world.executor().rejected(), 50);
}

}  // namespace
}  // namespace sluice::sim
