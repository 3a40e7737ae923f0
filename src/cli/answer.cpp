#include "cli/answer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/system/terminal.h"
#include "cli/terminal/answer_text.h"
#include "engine/event_queue.h"

namespace sluice::cli {

namespace {

// How soon an interrupt is noticed while nothing comes.
constexpr std::chrono::milliseconds kPatience(50);

// 0: the terminal cannot take back what it shows.
size_t screen_width() {
  const char* kind = std::getenv("TERM");
  return kind == nullptr || std::string_view(kind) == "dumb" ? 0 : terminal_width(STDOUT_FILENO);
}

}  // namespace

Result<Answer> stream_answer(llm::Session& session, std::vector<Token> prompt,
                             const llm::SamplingFlags& flags, const std::atomic<bool>& interrupted) {
  if (flags.max_tokens == 0)
    return Error{ErrorCode::InvalidArgument, "--max-tokens is 0; it must be -1 or at least 1"};
  if (session.room_after(prompt.size()) < 1)
    return Error{ErrorCode::LimitExceeded, fmt::format("the prompt has {} tokens, the context {}",
                                                       prompt.size(), session.setup().context)};
  Result<engine::TextMaker> text = engine::make_text_maker(session.tokenizer(), {.stop = flags.stop});
  if (!text) return text.error();
  auto queue = std::make_shared<engine::EventQueue>();
  engine::Submission submission;
  submission.request.task = flags.params(session.room_after(prompt.size()));
  submission.request.prompt = std::move(prompt);
  submission.deliver = [queue](engine::Event event) { queue->push(std::move(event)); };
  submission.text = text->make;
  submission.text_bytes = text->bytes;
  Result<engine::RequestId> id = session.engine().submit(std::move(submission));
  if (!id) return id.error();

  Answer answer;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  AnswerText screen(screen_width());
  bool cancelled = false;
  while (true) {
    if (interrupted.load() && !cancelled) {
      session.engine().cancel(*id);
      cancelled = true;
    }
    std::optional<engine::Event> event = queue->pop_for(kPatience);
    if (!event) continue;
    if (const auto* delta = std::get_if<engine::Delta>(&*event)) {
      fmt::print("{}", terminal ? screen.take(delta->text) : delta->text);
      std::fflush(stdout);
      answer.text += delta->text;
    } else if (auto* finished = std::get_if<engine::Finished>(&*event)) {
      if (finished->error) return *finished->error;
      if (!answer.text.ends_with('\n')) fmt::print("\n");
      std::fflush(stdout);
      answer.end = std::move(*finished);
      return answer;
    }
  }
}

std::string describe_timings(const engine::Finished& end) {
  const engine::Usage& usage = end.usage;
  const int computed = usage.prompt_tokens - usage.cached_tokens;
  const double prefill = end.timings.ttft - end.timings.queue;
  const auto tokens = [](int count) { return fmt::format("{} token{}", count, count == 1 ? "" : "s"); };
  std::string text = "prompt " + tokens(usage.prompt_tokens);
  if (usage.cached_tokens > 0) text += fmt::format(" ({} cached)", usage.cached_tokens);
  if (prefill > 0) text += fmt::format(" in {:.3f} s, {:.1f} tok/s", prefill, computed / prefill);
  text += "; answer " + tokens(usage.generated_tokens);
  if (end.timings.tpot > 0) text += fmt::format(", {:.1f} tok/s", 1.0 / end.timings.tpot);
  return text + fmt::format("; first token after {:.3f} s", end.timings.ttft);
}

}  // namespace sluice::cli
