#include "base/version.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

TEST(Version, NamesTheBuild) {
  const BuildInfo& info = build_info();
  EXPECT_EQ(std::count(info.version.begin(), info.version.end(), '.'), 2) << info.version;
  EXPECT_TRUE(info.commit.empty() || info.commit.size() == 12) << info.commit;
  EXPECT_NE(info.compiler, "");
}

}  // namespace
}  // namespace sluice
