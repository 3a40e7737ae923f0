#include "kernels/even_step.h"

#include <gtest/gtest.h>

namespace sluice::kernels {
namespace {

constexpr int64_t kProcessors = 132;

// One layer of Llama 3.1 8B: three matrices with tiles of 256 rows, of 4,096 columns but for the last.
EvenStep layer_of_8b() {
  EvenStep step;
  step.add(6144, 4096);
  step.add(4096, 4096);
  step.add(28672, 4096);
  step.add(4096, 14336);
  return step;
}

TEST(EvenStep, FillsTheTurnsOfTheMultiprocessors) {
  const EvenStep step = layer_of_8b();
  EXPECT_EQ(step.tokens(kProcessors), 1024);
  EXPECT_GT(step.share(1024, kProcessors), 0.9);
  EXPECT_LT(step.share(1152, kProcessors), 0.8);  // one row of tiles more: two turns for two matrices
}

TEST(EvenStep, SmallerMatricesNeedMoreTokens) {
  EvenStep small;
  small.add(3072, 2048);
  small.add(2048, 2048);
  small.add(16384, 2048);
  small.add(2048, 8192);
  EXPECT_GT(small.tokens(kProcessors), 1024);
  EXPECT_GE(small.share(small.tokens(kProcessors), kProcessors), 0.85);
}

TEST(EvenStep, KnowsNothingWithoutMatrices) {
  EXPECT_EQ(EvenStep().tokens(kProcessors), 0);
  EXPECT_EQ(layer_of_8b().tokens(0), 0);
}

}  // namespace
}  // namespace sluice::kernels
