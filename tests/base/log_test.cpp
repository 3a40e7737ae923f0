#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/json.h"

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

TEST(Log, WritesFieldsAsText) {
  testing::internal::CaptureStderr();
  log_message(LogLevel::Info, "request", {{"id", "req_1"}, {"status", int64_t{200}}, {"ms", 1.26}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "info request id=req_1 status=200 ms=1.3\n");
}

TEST(Log, WritesJsonLines) {
  set_log_format(LogFormat::Json);
  testing::internal::CaptureStderr();
  log_warning("a \"path\"\n with \x1b and \xff");
  log_message(LogLevel::Info, "request", {{"id", "ü"}, {"status", int64_t{200}}, {"ms", 1.25}});
  set_log_format(LogFormat::Text);
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t end = log.find('\n');
  const Result<json::value> first = parse_json(log.substr(0, end), "line"),
                            second = parse_json(log.substr(end + 1), "line");
  ASSERT_TRUE(first && second) << log;
  EXPECT_EQ(first->at("level").as_string(), "warning");
  EXPECT_EQ(first->at("message").as_string(), "a \"path\"\n with \x1b and ?");
  EXPECT_THAT(std::string(first->at("time").as_string()),
              testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z"));
  EXPECT_EQ(second->at("id").as_string(), "ü");
  EXPECT_EQ(second->at("status").as_int64(), 200);
  EXPECT_EQ(second->at("ms").as_double(), 1.25);
}

}  // namespace
}  // namespace sluice
