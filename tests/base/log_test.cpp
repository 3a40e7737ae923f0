#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace sluice {
namespace {

// In a process of its own: the log goes to a pipe that nobody reads.
[[noreturn]] void log_to_a_full_pipe() {
  alarm(60);  // whoever waits for a reader is ended
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) std::_Exit(2);
  write_log_in_background();
  for (int i = 0; i < 20'000; ++i) log_info("line {} of many that are longer than they need to be", i);
  const bool dropped = dropped_log_messages() > 0, written = flush_log();
  std::_Exit(dropped && !written ? 0 : 1);
}

TEST(LogDeathTest, NobodyWaitsForAReader) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(log_to_a_full_pipe(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice
