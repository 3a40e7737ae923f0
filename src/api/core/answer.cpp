#include "api/core/answer.h"

#include <algorithm>

#include "api/core/errors.h"
#include "base/check.h"

namespace sluice::api {

namespace {

ApiError why_unfinished(const engine::Finished& finished) {
  if (finished.error && finished.retry_after_s)
    return {.status = 429,
            .type = "rate_limit_error",
            .code = "deadline_unmet",
            .message = finished.error->message,
            .retry_after_s = *finished.retry_after_s};
  if (finished.error) return to_api_error(*finished.error);
  if (finished.reason == engine::FinishReason::Expired)
    return {.status = 408,
            .type = "timeout_error",
            .code = "request_timeout",
            .message = "The request was not complete within its time limit."};
  return {.status = 503,
          .type = "server_error",
          .code = "request_cancelled",
          .message = "The request was cancelled before it was complete."};
}

}  // namespace

std::string AnswerSetup::id(std::string_view prefix) const {
  return std::string(prefix) + (parsed.request_id.empty() ? request_id : parsed.request_id);
}

int AnswerSetup::prompt_tokens() const {
  size_t sum = 0;
  for (const std::vector<Token>& prompt : prompts) sum += prompt.size();
  return static_cast<int>(sum);
}

void AnswerBase::take(size_t index, const engine::Event& event, std::string& out) {
  if (done_ || error_) return;
  SLUICE_CHECK(index < setup_.prompts.size());
  const size_t before = out.size();
  if (const auto* delta = std::get_if<engine::Delta>(&event)) {
    on_delta(index, *delta, out);
  } else if (const auto* end = std::get_if<engine::ChoiceEnd>(&event)) {
    on_choice_end(index, *end, out);
  } else if (const auto* embedding = std::get_if<engine::Embedding>(&event)) {
    on_embedding(index, embedding->values);
  } else if (const auto* finished = std::get_if<engine::Finished>(&event)) {
    finish(*finished, out);
  }
  started_ = started_ || out.size() > before;
}

void AnswerBase::finish(const engine::Finished& finished, std::string& out) {
  const bool well =
      finished.reason == engine::FinishReason::Stop || finished.reason == engine::FinishReason::Length;
  if (!well) return fail(why_unfinished(finished), out);
  usage_.prompt_tokens += finished.usage.prompt_tokens;
  usage_.cached_tokens += finished.usage.cached_tokens;
  if (!setup_.prompt_alone()) usage_.generated_tokens += finished.usage.generated_tokens;
  if (finished.timings.latency >= timings_.latency) timings_ = finished.timings;
  if (--open_ > 0) return;
  on_complete(out);
  done_ = true;
}

void AnswerBase::fail(const ApiError& error, std::string& out) {
  if (done_ || error_) return;
  if (started_) {
    on_failure(error, out);
    done_ = true;
  } else {
    error_ = error;
  }
}

WholeAnswer::Choice& WholeAnswer::choice(size_t index, int number) {
  std::vector<Choice>& choices = parts_[index].choices;
  if (choices.size() <= static_cast<size_t>(number)) choices.resize(static_cast<size_t>(number) + 1);
  return choices[static_cast<size_t>(number)];
}

void WholeAnswer::on_delta(size_t index, const engine::Delta& delta, std::string&) {
  std::vector<request::Sampled>& prompt = parts_[index].prompt_logprobs;
  prompt.insert(prompt.end(), delta.prompt_logprobs.begin(), delta.prompt_logprobs.end());
  Choice& target = choice(index, delta.choice);
  if (setup().prompt_alone()) return;
  target.text += delta.text;
  target.tokens.insert(target.tokens.end(), delta.tokens.begin(), delta.tokens.end());
}

void WholeAnswer::on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string&) {
  choice(index, end.choice).end = end;
}

// Short answers are given at once, so that their length is known before they are sent.
void WholeAnswer::on_complete(std::string& out) {
  constexpr size_t kShort = size_t{256} << 10;
  pieces_ = pieces();
  const size_t begin = out.size();
  while (has_more() && out.size() - begin < kShort) next_piece(out);
}

void WholeAnswer::next_piece(std::string& out) {
  const Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  piece(out);
}

// Nothing of a whole answer is sent before it is complete.
void WholeAnswer::on_failure(const ApiError&, std::string&) {}

}  // namespace sluice::api
