// How the attention of single tokens is shared out: needs no device.
#include "kernels/cuda/attention/decode_attention_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

namespace sluice::kernels::cuda {
namespace {

struct Made {
  std::vector<int32_t> positions, rows, numbers;
  DecodeAttentionPlan tokens{};
  Ranges ranges{};

  void plan() {
    rows.resize(positions.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(7 * i);
    tokens.positions = positions;
    tokens.rows = rows;
    numbers = plan_decode_attention(tokens);
    std::memcpy(&ranges, numbers.data(), sizeof ranges);
  }
  DecodeAttentionStart start(int block) const {
    DecodeAttentionStart result;
    std::memcpy(&result, numbers.data() + kRangesInts + block * kStartInts, sizeof result);
    return result;
  }
  const int* first_unit() const { return numbers.data() + kRangesInts + tokens.blocks * kStartInts; }
  Walk walk(int range) const {
    if (range < ranges.own.parts) return start(range).walk;
    return Walk::from(first_unit(), static_cast<int>(positions.size()), tokens.kv_heads,
                      ranges.start_of_short(range), ranges.start_of_short(range + 1));
  }
};

struct Part {
  int range, unit, units;
};

// Every unit is in one range, and a cut head's parts lie where the one who merges them looks.
void expect_complete(const Made& made) {
  std::vector<int> seen(static_cast<size_t>(made.ranges.all));
  std::map<int, std::vector<Part>> heads;  // by their first unit
  for (int range = 0; range < made.ranges.count; ++range) {
    for (Walk walk = made.walk(range); walk.live(); walk.next(made.first_unit(), made.tokens.kv_heads)) {
      const int position = made.positions[static_cast<size_t>(walk.token)];
      ASSERT_EQ(walk.units, units_of(position, made.tokens.window));
      ASSERT_LE(walk.unit + walk.count(), walk.units);
      for (int i = 0; i < walk.count(); ++i) ++seen[static_cast<size_t>(walk.at + i)];
      if (walk.count() < walk.units) heads[walk.at - walk.unit].push_back({range, walk.unit, walk.units});
    }
  }
  for (const int times : seen) ASSERT_EQ(times, 1);
  EXPECT_TRUE(made.ranges.whole == 0 || heads.empty());
  for (const auto& [begin, parts] : heads) {
    const int first = made.ranges.range_of(begin), last = made.ranges.range_of(begin + parts[0].units - 1);
    ASSERT_EQ(static_cast<int>(parts.size()), last - first + 1);
    for (int i = 0; i <= last - first; ++i) {
      EXPECT_EQ(parts[static_cast<size_t>(i)].range, first + i);
      EXPECT_EQ(parts[static_cast<size_t>(i)].unit == 0, i == 0);
    }
  }
}

TEST(AttentionPlan, TakesEveryUnitOnce) {
  std::mt19937 random(3);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  int with_short_ranges = 0, whole = 0;
  for (int round = 0; round < 300; ++round) {
    Made made;
    const int longest = 1 + below(round % 2 == 0 ? 200 : 6000);
    const bool alike = below(4) == 0;
    made.positions.resize(static_cast<size_t>(1 + below(round % 3 == 0 ? 1024 : 300)));
    for (int32_t& position : made.positions) position = alike ? longest - 1 : below(longest);
    made.tokens.kv_heads = 1 + below(8);
    made.tokens.window = below(4) == 0 ? 1 + below(3000) : 0;
    made.tokens.whole = below(10) == 0;
    made.tokens.blocks = below(5) == 0 ? 1 + below(256) : 132;
    made.plan();
    expect_complete(made);
    if (::testing::Test::HasFatalFailure()) return;
    if (made.ranges.count > made.ranges.own.parts) ++with_short_ranges;
    if (made.ranges.whole != 0) ++whole;
    EXPECT_LE(made.ranges.count - made.ranges.own.parts, kMaxShort);
  }
  EXPECT_GT(with_short_ranges, 10);
  EXPECT_GT(whole, 10);
}

TEST(AttentionPlan, StartsWithTheTokensOwnNumbers) {
  Made made;
  made.positions = {100, 700, 40};
  made.tokens.kv_heads = 2;
  made.tokens.blocks = 4;
  made.plan();
  // 2, 11 and 1 units for each head: 28 in all, seven for each block
  EXPECT_EQ(made.ranges.all, 28);
  const DecodeAttentionStart second = made.start(1);
  EXPECT_EQ(second.walk.token, 1);
  EXPECT_EQ(second.walk.head, 0);
  EXPECT_EQ(second.walk.unit, 3);
  EXPECT_EQ(second.position, 700);
  EXPECT_EQ(second.row, 7);
}

// A recorded step is replayed with other positions in the same places.
TEST(AttentionPlan, IsAsLongForAnyPositions) {
  Made few, many;
  few.positions = {0, 0}, many.positions = {9000, 100};
  for (Made* made : {&few, &many}) {
    made->tokens.kv_heads = 8, made->tokens.blocks = 132;
    made->plan();
  }
  EXPECT_EQ(few.numbers.size(), many.numbers.size());
}

TEST(DecodeAttentionClusters, AreForFewHeadsOfAlikeLength) {
  const auto faster = [](std::vector<int32_t> positions, int window, int blocks) {
    return clusters_are_faster(positions, {8, window, blocks, 132});
  };
  EXPECT_TRUE(faster({575}, 0, 8));
  EXPECT_FALSE(faster({32767}, 0, 8));    // 64 of 132 multiprocessors would read all of it
  EXPECT_TRUE(faster({32767}, 1024, 8));  // of which a window leaves little
  EXPECT_TRUE(faster(std::vector<int32_t>(8, 4095), 0, 2));
  EXPECT_FALSE(faster({100, 100, 100, 4095}, 0, 4));  // the others would wait for the longest
  EXPECT_FALSE(faster({575}, 0, 0));
}

}  // namespace
}  // namespace sluice::kernels::cuda
