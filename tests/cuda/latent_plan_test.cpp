// Plans of attention over latents: every (query, head) pair meets every key that it sees in exactly one work, and what is
// split is merged, all of it and nothing else. Needs no device.
#include "kernels/cuda/latent/latent_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace sluice::kernels::cuda {
namespace {

constexpr int kProcessors = 132;

std::vector<LatentSequence> sequences_of(const std::vector<std::pair<int, int>>& queries_and_lengths) {
  std::vector<LatentSequence> all;
  int32_t begin = 0, row = 0;
  for (const auto& [queries, length] : queries_and_lengths) {
    all.push_back({begin, queries, row, length});
    begin += queries;
    row += (length + 63) / 64;
  }
  return all;
}

void check(const std::vector<LatentSequence>& sequences, int heads) {
  const LatentPlanLayout layout = latent_layout(sequences, heads, kProcessors);
  const std::vector<int32_t> plan = plan_latent(sequences, layout);
  ASSERT_EQ(static_cast<int32_t>(plan.size()), layout.size());
  const auto at = [&](int32_t place) { return plan[static_cast<size_t>(place)]; };
  const int32_t works = at(layout.first_work() + layout.clusters);
  ASSERT_LE(works, layout.works);
  std::map<std::pair<int, int>, int> keys;         // (first query of the sequence, first row) -> keys covered
  std::map<int32_t, std::pair<int, int>> partial;  // place of a part -> its tile
  for (int32_t w = 0; w < works; ++w) {
    const std::pair tile{at(layout.work_array(0) + w), at(layout.work_array(5) + w)};
    keys[tile] += at(layout.work_array(7) + w) - at(layout.work_array(6) + w);
    if (const int32_t place = at(layout.work_array(2) + w); place >= 0) partial[place] = tile;
  }
  size_t tiles = 0;
  for (const LatentSequence& s : sequences) {
    const int rows = s.queries * heads;
    for (int row = 0; row < rows; row += layout.rows(), ++tiles) {
      const int last = std::min(row + layout.rows(), rows) - 1;  // of the tile; its query sees the most
      const int seen = s.length - s.queries + last / heads + 1;
      ASSERT_TRUE(keys.contains({s.query_begin, row}));
      EXPECT_GE((keys[{s.query_begin, row}]), seen);
      EXPECT_LE((keys[{s.query_begin, row}]), s.length);
    }
  }
  EXPECT_EQ(keys.size(), tiles);
  // Rows of each split tile that are merged, by where its parts begin.
  std::map<std::pair<int, int>, int> merged;
  for (int32_t m = 0; m < layout.blocks(); ++m) {
    const int32_t rows = at(layout.merge_array(1) + m) - at(layout.merge_array(0) + m);
    if (rows == 0) continue;
    auto part = partial.upper_bound(at(layout.merge_array(2) + m));
    ASSERT_NE(part, partial.begin());
    merged[(--part)->second] += rows;
  }
  for (const auto& [place, tile] : partial) {
    ASSERT_TRUE(merged.contains(tile));
    const auto owner =
        std::find_if(sequences.begin(), sequences.end(),
                     [&, first = tile.first](const LatentSequence& s) { return s.query_begin == first; });
    EXPECT_EQ(merged[tile], std::min(layout.rows(), owner->queries * heads - tile.second));
  }
  EXPECT_EQ(partial.empty(), merged.empty());
}

TEST(LatentPlan, CoversEveryKeyOnce) {
  check(sequences_of({{1, 576}}), 16);
  check(sequences_of({{1, 1}, {1, 5000}, {1, 64}, {1, 65}}), 16);
  check(sequences_of({{4, 300}, {1, 40}, {7, 7}}), 16);
  check(sequences_of({{1, 2000}, {1, 100}}), 128);
  std::mt19937 random(5);
  for (const int count : {8, 64, 200, 256}) {
    std::vector<std::pair<int, int>> all;
    for (int i = 0; i < count; ++i) all.emplace_back(1, 1 + static_cast<int>(random() % 3000));
    check(sequences_of(all), 16);
  }
}

TEST(LatentPlan, LayoutDependsOnQueriesAlone) {
  const auto layout = [](int length) {
    return latent_layout(sequences_of({{1, length}, {1, 3 * length}}), 16, kProcessors).size();
  };
  EXPECT_EQ(layout(10), layout(10000));
}

}  // namespace
}  // namespace sluice::kernels::cuda
