#include "cli/answer.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>

namespace sluice::cli {

namespace {

// Events from the engine's thread to the one that writes.
class EventPipe {
 public:
  void push(engine::Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  // False where nothing came for a while.
  bool pop(engine::Event& event) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !events_.empty(); }))
      return false;
    event = std::move(events_.front());
    events_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<engine::Event> events_;
};

}  // namespace

Result<Answer> stream_answer(Session& session, std::vector<Token> prompt, const SamplingFlags& flags,
                             const std::atomic<bool>& interrupted) {
  if (flags.max_tokens == 0)
    return Error{ErrorCode::InvalidArgument, "--max-tokens is 0; it must be -1 or at least 1"};
  if (session.room_after(prompt.size()) < 1)
    return Error{ErrorCode::LimitExceeded, fmt::format("the prompt has {} tokens, the context {}",
                                                       prompt.size(), session.setup().context)};
  Result<engine::TextFactory> text = engine::make_text_factory(session.tokenizer(), {.stop = flags.stop});
  if (!text) return text.error();
  auto pipe = std::make_shared<EventPipe>();
  engine::Submission submission;
  submission.request.task = flags.params(session.room_after(prompt.size()));
  submission.request.prompt = std::move(prompt);
  submission.deliver = [pipe](engine::Event event) { pipe->push(std::move(event)); };
  submission.text = *text;
  Result<engine::RequestId> id = session.engine().submit(std::move(submission));
  if (!id) return id.error();

  Answer answer;
  bool cancelled = false;
  while (true) {
    if (interrupted.load() && !cancelled) {
      session.engine().cancel(*id);
      cancelled = true;
    }
    engine::Event event;
    if (!pipe->pop(event)) continue;
    if (const auto* delta = std::get_if<engine::Delta>(&event)) {
      fmt::print("{}", delta->text);
      std::fflush(stdout);
      answer.text += delta->text;
    } else if (auto* finished = std::get_if<engine::Finished>(&event)) {
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
  std::string text = fmt::format("prompt {} tokens", usage.prompt_tokens);
  if (usage.cached_tokens > 0) text += fmt::format(" ({} cached)", usage.cached_tokens);
  if (prefill > 0) text += fmt::format(" in {:.3f} s, {:.1f} tok/s", prefill, computed / prefill);
  text += fmt::format("; answer {} tokens", usage.generated_tokens);
  if (end.timings.tpot > 0) text += fmt::format(", {:.1f} tok/s", 1.0 / end.timings.tpot);
  return text + fmt::format("; first token after {:.3f} s", end.timings.ttft);
}

}  // namespace sluice::cli
