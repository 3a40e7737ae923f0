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
      rc::gen::set(&World::drafts, rc::gen::element(0, 0, 1, 3, 9)),
      rc::gen::set(&World::state_slots, rc::gen::element(0, 0, 8, 17, 60)));
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

// The workload above would hold as well if states were never found again, shared or moved.
TEST(Simulation, MatchesSharesAndMovesStates) {
  uint64_t cached = 0, copied = 0, swapped = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Simulation world({.seed = seed,
                      .swap = true,
                      .searches = true,
                      .depth = 1 + static_cast<int>(seed % 2),
                      .blocks = 24,
                      .host_blocks = 40,
                      .budget = 24,
                      .requests = 30,
                      .state_slots = 16});
    EXPECT_EQ(world.run(), "") << seed;
    cached += world.engine().scheduler().counters().cached_tokens;
    copied += world.engine().kv_manager().counters().copied;
    swapped += world.engine().kv_manager().counters().swapped_in;
  }
  EXPECT_GT(cached, 100u);
  EXPECT_GT(copied, 20u);
  EXPECT_GT(swapped, 20u);
}

// Neither would it say anything of states behind drafts if there were never slots for them.
TEST(Simulation, VerifiesDraftsOfModelsThatKeepStates) {
  int64_t accepted = 0, rejected = 0;
  uint64_t cached = 0, swapped = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Simulation world({.seed = seed,
                      .preallocate = seed % 4 == 0,
                      .swap = seed % 3 > 0,
                      .depth = 1 + static_cast<int>(seed % 2),
                      .block_size = 2 << (seed % 3),
                      .blocks = 22,
                      .host_blocks = 40,
                      .budget = 40,
                      .requests = 30,
                      .drafts = 5,
                      .state_slots = 40});
    EXPECT_EQ(world.run(), "") << seed;
    accepted += world.executor().accepted();
    rejected += world.executor().rejected();
    cached += world.engine().scheduler().counters().cached_tokens;
    swapped += world.engine().kv_manager().counters().swapped_in;
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(rejected, 500);
  EXPECT_GT(cached, 100u);
  EXPECT_GT(swapped, 10u);
}

}  // namespace
}  // namespace sluice::sim
