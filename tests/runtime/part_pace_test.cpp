#include "runtime/memory/part_pace.h"

#include <gtest/gtest.h>

namespace sluice::runtime {
namespace {

using Kind = PartPace::Kind;

// 0.2 ms, and 0.1 ms for each token.
PartPace pace_of_rows() {
  PartPace pace;
  for (int i = 0; i < 100; ++i) {
    const int64_t tokens = 16 * (1 + i % 4);
    pace.note(Kind::WindowedRows, tokens, 0.2e-3 + 0.1e-3 * static_cast<double>(tokens));
  }
  return pace;
}

TEST(PartPace, PartsAreAsLargeAsTheTimeAllows) {
  const PartPace pace = pace_of_rows();
  EXPECT_TRUE(pace.known(Kind::WindowedRows));
  EXPECT_FALSE(pace.known(Kind::Keys));
  EXPECT_EQ(pace.tokens_within(Kind::WindowedRows, 1.7e-3), 0);
  EXPECT_EQ(pace.tokens_within(Kind::WindowedRows, 1.9e-3), 16);
  EXPECT_EQ(pace.tokens_within(Kind::WindowedRows, 7e-3), 64);
  EXPECT_EQ(pace.tokens_within(Kind::WindowedRows, 1), PartPace::kMost);
}

TEST(PartBudget, NoPartIsBegunThatWouldEndBehindTheTime) {
  const PartPace pace = pace_of_rows();
  PartBudget budget;
  for (int step = 0; step < 20; ++step) {
    double spent = 0;
    budget.begin_step(4e-3);
    for (int64_t tokens = budget.next(pace, Kind::WindowedRows, spent); tokens > 0;
         tokens = budget.next(pace, Kind::WindowedRows, spent)) {
      budget.note_part();
      spent += 0.2e-3 + 0.1e-3 * static_cast<double>(tokens);
    }
    budget.end_step(true);
    EXPECT_LE(spent, 4e-3);
    EXPECT_GT(spent, 3e-3);
  }
}

TEST(PartBudget, TimeThatIsTooShortIsSavedUp) {
  const PartPace pace = pace_of_rows();
  PartBudget budget;
  int parts = 0;
  for (int step = 0; step < 30; ++step) {
    budget.begin_step(0.7e-3);  // the third has 2.1 ms
    const int64_t tokens = budget.next(pace, Kind::WindowedRows, 0);
    if (tokens > 0) budget.note_part();
    parts += tokens == 16;
    budget.end_step(true);
  }
  EXPECT_EQ(parts, 10);
  // Not while there is nothing to run.
  for (int step = 0; step < 30; ++step) {
    budget.begin_step(0.7e-3);
    budget.end_step(false);
  }
  budget.begin_step(0.7e-3);
  EXPECT_EQ(budget.next(pace, Kind::WindowedRows, 0), 0);
}

TEST(PartBudget, WithoutAnyTimeAPartIsRunNowAndThen) {
  const PartPace pace = pace_of_rows();
  PartBudget budget;
  int parts = 0;
  for (int step = 0; step < 90; ++step) {
    budget.begin_step(0);
    if (budget.next(pace, Kind::WindowedRows, 0) > 0) {
      budget.note_part();
      ++parts;
    }
    budget.end_step(true);
  }
  EXPECT_EQ(parts, 10);
}

// What a kind of part takes is learned by running the smallest, at the begin of a step.
TEST(PartBudget, AnUnknownKindRunsAlone) {
  const PartPace pace = pace_of_rows();
  PartBudget budget;
  budget.begin_step(1e-3);
  EXPECT_EQ(budget.next(pace, Kind::Keys, 0), PartPace::kLeast);
  budget.note_part();
  EXPECT_EQ(budget.next(pace, Kind::Keys, 0), 0);
}

}  // namespace
}  // namespace sluice::runtime
