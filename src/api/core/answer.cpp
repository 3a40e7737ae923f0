#include "api/core/answer.h"

#include <algorithm>
#include <array>

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

// Nine letters and digits, as the strictest templates want them: of the request and the call's place in its answer.
std::string call_id(std::string_view request, const std::array<size_t, 3>& place) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr uint64_t kPrime = 1099511628211ULL;  // FNV-1a's, of 64 bits
  uint64_t hash = 14695981039346656037ULL;
  const auto mix = [&](uint64_t byte) { hash = (hash ^ byte) * kPrime; };
  for (const char c : request) mix(static_cast<unsigned char>(c));
  for (const size_t number : place) mix(number + 1);
  mix(hash >> 32);
  std::string id;
  for (size_t i = 0; i < 9; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
  return id;
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
    read_delta(index, *delta, out);
  } else if (const auto* end = std::get_if<engine::ChoiceEnd>(&event)) {
    read_end(index, *end, out);
  } else if (const auto* embedding = std::get_if<engine::Embedding>(&event)) {
    on_embedding(index, embedding->values);
  } else if (const auto* finished = std::get_if<engine::Finished>(&event)) {
    finish(*finished, out);
  }
  started_ = started_ || out.size() > before;
}

AnswerBase::Reader& AnswerBase::reader(size_t index, int choice) {
  Reader& reader = readers_[{index, choice}];
  if (!reader.parser) reader.parser = chat::make_output_parser(setup_.output, setup_.tools, setup_.start);
  return reader;
}

bool AnswerBase::has_called(size_t index, int choice) const {
  const auto found = readers_.find({index, choice});
  return found != readers_.end() && found->second.calls > 0;
}

void AnswerBase::read_delta(size_t index, const engine::Delta& delta, std::string& out) {
  AnswerDelta read{delta, {}};
  if (setup_.output) {
    Reader& current = reader(index, delta.choice);
    const bool reasoned = current.parser->in_reasoning();
    current.parser->push(delta.text, read.pieces);
    if (reasoned || current.parser->in_reasoning())
      reasoning_tokens_ += static_cast<int>(delta.tokens.size());
    read.pieces = shown(current, index, delta.choice, std::move(read.pieces));
  } else if (!delta.text.empty()) {
    read.pieces.emplace_back(chat::ContentPiece{delta.text});
  }
  on_delta(index, read, out);
}

void AnswerBase::read_end(size_t index, const engine::ChoiceEnd& end, std::string& out) {
  if (setup_.output) {
    Reader& current = reader(index, end.choice);
    std::vector<chat::OutputPiece> rest;
    current.parser->finish(rest);
    const engine::Delta nothing{.choice = end.choice, .tokens = {}, .text = {}, .prompt_logprobs = {}};
    const AnswerDelta last{nothing, shown(current, index, end.choice, std::move(rest))};
    if (!last.pieces.empty()) on_delta(index, last, out);
  }
  on_choice_end(index, end, out);
}

// What the client asked to see; calls without an id of their own get one.
std::vector<chat::OutputPiece> AnswerBase::shown(Reader& reader, size_t index, int choice,
                                                 std::vector<chat::OutputPiece> pieces) const {
  constexpr size_t kShortestId = 9;  // shorter ones are numbers that the next answer has again
  const ParsedRequest& parsed = setup_.parsed;
  std::erase_if(pieces, [&](const chat::OutputPiece& piece) {
    const auto* call = std::get_if<chat::CallPiece>(&piece);
    const auto* arguments = std::get_if<chat::ArgumentsPiece>(&piece);
    const int number = call != nullptr ? call->call : arguments != nullptr ? arguments->call : 0;
    return (parsed.tools.one_call() && number > 0) ||
           (!parsed.reasoning.is_shown && std::holds_alternative<chat::ReasoningPiece>(piece));
  });
  for (chat::OutputPiece& piece : pieces) {
    auto* call = std::get_if<chat::CallPiece>(&piece);
    if (call == nullptr) continue;
    if (call->id.size() < kShortestId)
      call->id =
          call_id(setup_.request_id, {index, static_cast<size_t>(choice), static_cast<size_t>(call->call)});
    ++reader.calls;
  }
  return pieces;
}

void AnswerBase::finish(const engine::Finished& finished, std::string& out) {
  const bool well =
      finished.reason == engine::FinishReason::Stop || finished.reason == engine::FinishReason::Length;
  if (!well) {
    const std::optional<ApiError> problem = setup_.grammar ? setup_.grammar->problem() : std::nullopt;
    return fail(problem ? in_clients_words(*problem, setup_.parsed.sent) : why_unfinished(finished), out);
  }
  usage_.prompt_tokens += finished.usage.prompt_tokens;
  usage_.cached_tokens += finished.usage.cached_tokens;
  usage_.drafted_tokens += finished.usage.drafted_tokens;
  usage_.accepted_drafts += finished.usage.accepted_drafts;
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

void WholeAnswer::on_delta(size_t index, const AnswerDelta& delta, std::string&) {
  std::vector<request::Sampled>& prompt = parts_[index].prompt_logprobs;
  prompt.insert(prompt.end(), delta.raw.prompt_logprobs.begin(), delta.raw.prompt_logprobs.end());
  Choice& target = choice(index, delta.raw.choice);
  if (setup().prompt_alone()) return;
  for (const chat::OutputPiece& piece : delta.pieces) {
    if (const auto* content = std::get_if<chat::ContentPiece>(&piece)) target.text += content->text;
    if (const auto* thought = std::get_if<chat::ReasoningPiece>(&piece)) target.reasoning += thought->text;
    if (const auto* call = std::get_if<chat::CallPiece>(&piece))
      target.calls.push_back({call->name, call->id, {}});
    if (const auto* part = std::get_if<chat::ArgumentsPiece>(&piece))
      target.calls[static_cast<size_t>(part->call)].arguments += part->text;
  }
  target.tokens.insert(target.tokens.end(), delta.raw.tokens.begin(), delta.raw.tokens.end());
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
