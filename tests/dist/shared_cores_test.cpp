// Which ranks take turns because they compute on the same cores.
#include "dist/shared_cores.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

namespace sluice::dist {
namespace {

RankCores rank_on(const char* host, uint64_t cores, int threads) {
  RankCores rank{.threads = threads};
  std::strncpy(rank.host.data(), host, rank.host.size() - 1);
  rank.cores[0] = cores;
  return rank;
}

TEST(SharedCores, RanksWithCoresOfTheirOwnComputeAtTheSameTime) {
  EXPECT_EQ(core_sharers(std::vector{rank_on("a", 0xf0, 4), rank_on("a", 0x0f, 4)}), (std::vector{0, 1}));
  // Free to run anywhere, and few enough.
  EXPECT_EQ(core_sharers(std::vector{rank_on("a", 0xff, 4), rank_on("a", 0xff, 4)}), (std::vector{0, 1}));
  EXPECT_EQ(core_sharers(std::vector{rank_on("a", 0xff, 8), rank_on("b", 0xff, 8)}), (std::vector{0, 1}));
}

TEST(SharedCores, RanksOfAHostWithMoreThreadsThanCoresShareThem) {
  EXPECT_EQ(core_sharers(std::vector{rank_on("a", 0xff, 8), rank_on("a", 0xff, 8)}), (std::vector{0, 0}));
  EXPECT_EQ(core_sharers(
                std::vector{rank_on("a", 3, 2), rank_on("b", 3, 1), rank_on("a", 3, 1), rank_on("b", 3, 1)}),
            (std::vector{0, 1, 0, 2}));
}

TEST(SharedCores, AProcessKnowsItsCores) {
  const RankCores own = own_cores(3);
  EXPECT_EQ(own.threads, 3);
  EXPECT_NE(own.host[0], '\0');
  int cores = 0;
  for (const uint64_t word : own.cores) cores += std::popcount(word);
  EXPECT_GE(cores, 1);
}

}  // namespace
}  // namespace sluice::dist
