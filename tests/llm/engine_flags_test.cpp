#include "llm/engine_flags.h"

#include <gtest/gtest.h>

namespace sluice::llm {
namespace {

TEST(StepTokens, AreMoreWhereATokenIsLittleWork) {
  EXPECT_EQ(default_step_tokens(false, 600'000'000), 512);
  EXPECT_EQ(default_step_tokens(true, 600'000'000), 16384);
  EXPECT_EQ(default_step_tokens(true, 3'300'000'000), 16384) << "30B, of which 3B are active";
  EXPECT_EQ(default_step_tokens(true, 8'000'000'000), 8192);
}

}  // namespace
}  // namespace sluice::llm
