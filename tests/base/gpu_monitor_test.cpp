#include "base/system/gpu_monitor.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(GpuMonitor, SaysThatThereIsNoCardOrReadsIt) {
  Result<std::shared_ptr<GpuMonitor>> monitor = GpuMonitor::open(0);
  if (!monitor) {
    EXPECT_EQ(monitor.error().code, ErrorCode::Unavailable);
    EXPECT_NE(monitor.error().message.find("NVML"), std::string::npos);
    return;
  }
  const std::optional<GpuStats> stats = (*monitor)->read();
  ASSERT_TRUE(stats.has_value());
  EXPECT_FALSE(stats->name.empty());
  EXPECT_GT(stats->memory_total, 0u);
  EXPECT_LE(stats->memory_used, stats->memory_total);
  EXPECT_TRUE(stats->utilization >= 0 && stats->utilization <= 1);
}

TEST(GpuMonitor, SaysWhichCardIsMissing) {
  EXPECT_FALSE(GpuMonitor::open(4096).ok());
}

}  // namespace
}  // namespace sluice
