#include "cli/answer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/system/terminal.h"
#include "cli/terminal/answer_text.h"

namespace sluice::cli {

namespace {

// 0: the terminal cannot take back what it shows.
size_t screen_width() {
  const char* kind = std::getenv("TERM");
  return kind == nullptr || std::string_view(kind) == "dumb" ? 0 : terminal_width(STDOUT_FILENO);
}

}  // namespace

Result<llm::Answer> stream_answer(llm::Session& session, request::Request prompt,
                                  const llm::SamplingFlags& flags, const std::atomic<bool>& interrupted) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  AnswerText screen(screen_width());
  const auto show = [&](std::string_view piece) {
    if (!piece.empty()) {
      fmt::print("{}", terminal ? screen.take(std::string(piece)) : piece);
      std::fflush(stdout);
    }
    return !interrupted.load();
  };
  Result<llm::Answer> answer = session.answer(std::move(prompt), flags, show);
  if (!answer) return answer;
  if (!answer->text.ends_with('\n')) fmt::print("\n");
  std::fflush(stdout);
  return answer;
}

std::string describe_timings(const llm::Answer& answer) {
  const int computed = answer.prompt_tokens - answer.cached_tokens;
  const double prefill = answer.first_token_s - answer.queue_s;
  const auto tokens = [](int count) { return fmt::format("{} token{}", count, count == 1 ? "" : "s"); };
  std::string text = "prompt " + tokens(answer.prompt_tokens);
  if (answer.cached_tokens > 0) text += fmt::format(" ({} cached)", answer.cached_tokens);
  if (prefill > 0) text += fmt::format(" in {:.3f} s, {:.1f} tok/s", prefill, computed / prefill);
  text += "; answer " + tokens(answer.generated_tokens);
  if (answer.per_token_s > 0) text += fmt::format(", {:.1f} tok/s", 1.0 / answer.per_token_s);
  return text + fmt::format("; first token after {:.3f} s", answer.first_token_s);
}

}  // namespace sluice::cli
