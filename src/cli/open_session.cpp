#include "cli/open_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace sluice::cli {

namespace {

// Shown on a terminal once loading takes longer than this.
constexpr double kProgressAfter = 2.0;

}  // namespace

Result<std::unique_ptr<llm::Session>> open_session(llm::SessionOptions options) {
  if (isatty(STDERR_FILENO) == 0) return llm::Session::open(options);
  const TimePoint start = Clock::now();
  bool shown = false;
  const auto clear = [&] {
    if (shown) fmt::print(stderr, "\r\033[K");
    shown = false;
  };
  options.progress = [&](float share) {
    if (share >= 1) return clear();
    if (seconds_since(start) < kProgressAfter) return;
    fmt::print(stderr, "\rloading {:3.0f} %", static_cast<double>(share) * 100.0);
    shown = true;
  };
  Result<std::unique_ptr<llm::Session>> session = llm::Session::open(options);
  clear();
  return session;
}

}  // namespace sluice::cli
