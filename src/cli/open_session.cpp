#include "cli/open_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace sluice::cli {

namespace {

constexpr int kCompressorKvTokens = 16 * 1024;

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

compress::Model compress_model(llm::Session& session) {
  return {.engine = &session.engine(),
          .tokenizer = &session.tokenizer(),
          .chat_template = session.has_chat_template() ? &session.chat_template() : nullptr,
          .grammars = session.grammars(),
          .context = session.setup().context,
          .takes_positions = models::takes_positions(session.model().spec())};
}

Result<std::unique_ptr<llm::Session>> open_compressor(const std::string& model,
                                                      const llm::SessionOptions& target) {
  llm::SessionOptions options;
  options.model = model;
  options.engine.device = target.engine.device;
  options.engine.kv_tokens = kCompressorKvTokens;
  options.engine.target_tbt = 0;
  options.engine.prefix_cache = false;
  options.progress = target.progress;
  return open_session(options);
}

}  // namespace sluice::cli
