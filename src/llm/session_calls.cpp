// What a session does for a caller: answers, vectors, tokens.
#include <fmt/format.h>

#include <chrono>

#include "base/json.h"
#include "base/system/file.h"
#include "chat/chat_prompt.h"
#include "engine/engine.h"
#include "engine/event_queue.h"
#include "engine/picture_prompt.h"
#include "engine/text_stream.h"
#include "llm/call_flags.h"
#include "llm/engine_flags.h"
#include "llm/guarded.h"
#include "llm/sampling_flags.h"
#include "llm/session.h"

namespace sluice::llm {

namespace {

// How soon a caller who no longer wants an answer is heard while nothing comes.
constexpr std::chrono::milliseconds kPatience(50);

// A request of this thread, cancelled where it is left before its end.
class RunningRequest {
 public:
  static Result<RunningRequest> start(engine::Engine& engine, engine::Submission submission) {
    auto queue = std::make_shared<engine::EventQueue>();
    submission.deliver = [queue](engine::Event event) { queue->push(std::move(event)); };
    Result<engine::RequestId> id = engine.submit(std::move(submission));
    if (!id) return id.error();
    return RunningRequest(engine, *id, std::move(queue));
  }
  RunningRequest(RunningRequest&& other) noexcept = default;
  ~RunningRequest() {
    if (queue_) engine_->cancel(id_);  // of no effect on one that has ended
  }

  void cancel() { engine_->cancel(id_); }
  std::optional<engine::Event> next() { return queue_->pop_for(kPatience); }

 private:
  RunningRequest(engine::Engine& engine, engine::RequestId id, std::shared_ptr<engine::EventQueue> queue)
      : engine_(&engine), id_(id), queue_(std::move(queue)) {}

  engine::Engine* engine_;
  engine::RequestId id_;
  std::shared_ptr<engine::EventQueue> queue_;
};

Answer::End end_of(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::Stop:
      return Answer::End::Stop;
    case engine::FinishReason::Length:
      return Answer::End::Length;
    case engine::FinishReason::Cancelled:
    case engine::FinishReason::Expired:
    case engine::FinishReason::Error:
      break;
  }
  return Answer::End::Cancelled;
}

void note_end(const engine::Finished& finished, Answer& answer) {
  answer.end = end_of(finished.reason);
  answer.prompt_tokens = finished.usage.prompt_tokens;
  answer.cached_tokens = finished.usage.cached_tokens;
  answer.generated_tokens = finished.usage.generated_tokens;
  answer.queue_s = finished.timings.queue;
  answer.first_token_s = finished.timings.ttft;
  answer.per_token_s = finished.timings.tpot;
  answer.total_s = finished.timings.latency;
}

Error no_tokenizer() {
  return {ErrorCode::Unsupported, "a text needs a tokenizer, which this model does not have"};
}

Error too_long(size_t tokens, int context) {
  return {ErrorCode::LimitExceeded, fmt::format("the prompt has {} tokens, the context {}", tokens, context)};
}

}  // namespace

Result<Answer> Session::answer(std::vector<Token> prompt, const SamplingFlags& flags, const OnText& on_text) {
  request::Request request;
  request.prompt = std::move(prompt);
  return answer(std::move(request), flags, on_text);
}

Result<Answer> Session::answer(request::Request prompt, const SamplingFlags& flags, const OnText& on_text) {
  const size_t length = prompt.prompt.size();
  if (flags.max_tokens == 0)
    return Error{ErrorCode::InvalidArgument, "--max-tokens is 0; it must be -1 or at least 1"};
  if (room_after(length) < 1) return too_long(length, setup().context);
  Result<engine::TextMaker> text = engine::make_text_maker(tokenizer(), {.stop = flags.stop});
  if (!text) return text.error();
  engine::Submission submission;
  submission.request = std::move(prompt);
  submission.request.task = flags.params(room_after(length));
  Result<std::optional<request::Constraint>> constraint = flags.constraint();
  if (!constraint) return constraint.error();
  if (*constraint) {
    Result<std::shared_ptr<const void>> grammar = compile(**constraint);
    if (!grammar) return grammar.error();
    submission.kept = std::move(*grammar);
    submission.request.sampling().constraint = std::move(*constraint);
  }
  submission.text = text->make;
  submission.text_bytes = text->bytes;
  Result<RunningRequest> running = RunningRequest::start(engine(), std::move(submission));
  if (!running) return running.error();

  Answer answer;
  bool wanted = true;
  const auto offer = [&](std::string_view piece) {
    if (!wanted || !on_text || on_text(piece)) return;
    wanted = false;
    running->cancel();
  };
  while (true) {
    std::optional<engine::Event> event = running->next();
    if (!event) {
      offer({});
    } else if (const auto* delta = std::get_if<engine::Delta>(&*event)) {
      if (!wanted) continue;
      answer.text += delta->text;
      offer(delta->text);
    } else if (const auto* finished = std::get_if<engine::Finished>(&*event)) {
      if (finished->error) return *finished->error;
      note_end(*finished, answer);
      return answer;
    }
  }
}

namespace {

constexpr size_t kMostPictureBytes = size_t{64} << 20;

Result<std::vector<engine::Picture>> read_pictures(const engine::PictureReader* reader,
                                                   const std::vector<std::string>& files) {
  std::vector<engine::Picture> out;
  if (reader == nullptr)
    return Error{ErrorCode::Unsupported, fmt::format("{}: the model reads text alone", files.front())};
  for (const std::string& file : files) {
    Result<std::string> bytes = read_regular_file(file, kMostPictureBytes);
    if (!bytes) return bytes.error();
    Result<engine::Picture> picture = reader->read(*bytes);
    if (!picture) return Error{picture.error().code, fmt::format("{}: {}", file, picture.error().message)};
    out.push_back(std::move(*picture));
  }
  return out;
}

}  // namespace

Result<request::Request> Session::encode_prompt(std::string_view prompt, const PromptFlags& flags) const {
  const bool has_system = !flags.system.empty();
  request::Request out;
  const auto take = [&](Result<std::vector<Token>> tokens) -> Result<request::Request> {
    if (!tokens) return tokens.error();
    out.prompt = std::move(*tokens);
    return std::move(out);
  };
  if (!has_tokenizer()) return no_tokenizer();
  if (flags.raw || !has_chat_template()) {
    if (!has_system && flags.images.empty()) return take(encode_text(prompt));
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} needs a chat template, which {}", has_system ? "--system" : "--image",
                             flags.raw ? "--raw leaves out" : "this model does not have")};
  }
  json::array messages;
  if (has_system) messages.push_back({{"role", "system"}, {"content", flags.system}});
  json::value content = json::string(prompt);
  if (!flags.images.empty()) {
    json::array parts(flags.images.size(), json::object{{"type", "image"}});
    parts.push_back(json::object{{"type", "text"}, {"text", content}});
    content = std::move(parts);
  }
  messages.push_back(json::object{{"role", "user"}, {"content", std::move(content)}});
  chat::ChatPrompt talk{.variables = {{"messages", std::move(messages)}}};
  if (flags.images.empty()) return take(encode_chat(std::move(talk)));
  Result<std::vector<engine::Picture>> made = read_pictures(pictures(), flags.images);
  if (!made) return made.error();
  Result<chat::Rendering> rendering = chat::render_chat(chat_template(), tokenizer(), std::move(talk));
  if (!rendering) return rendering.error();
  const engine::PictureStyle& style = pictures()->style();
  if (Status put = engine::insert_pictures(*rendering, style.placeholder, *made); !put) return put.error();
  Result<std::vector<Token>> tokens = chat::encode_rendering(tokenizer(), *rendering);
  if (!tokens) return tokens.error();
  out.prompt = std::move(*tokens);
  if (Status placed = engine::add_picture_spans(out, style, *made); !placed) return placed.error();
  return out;
}

Result<Answer> Session::generate(std::string_view prompt, const Settings& settings, const OnText& on_text) {
  return guarded([&]() -> Result<Answer> {
    PromptFlags how;
    SamplingFlags sampling;
    OptionSet known;
    how.declare(known);
    sampling.declare(known);
    if (Status status = set_values(known, settings); !status) return status.error();
    Result<request::Request> request = encode_prompt(prompt, how);
    if (!request) return request.error();
    sampling.settle(defaults());
    return answer(std::move(*request), sampling, on_text);
  });
}

Result<Answer> Session::chat(const std::vector<Message>& messages, const Settings& settings,
                             const OnText& on_text) {
  return guarded([&]() -> Result<Answer> {
    SamplingFlags sampling;
    OptionSet known;
    sampling.declare(known);
    if (Status status = set_values(known, settings); !status) return status.error();
    json::array list;
    for (const Message& message : messages)
      list.push_back({{"role", message.role}, {"content", message.content}});
    Result<std::vector<Token>> tokens = encode_chat({.variables = {{"messages", list}}});
    if (!tokens) return tokens.error();
    sampling.settle(defaults());
    return answer(std::move(*tokens), sampling, on_text);
  });
}

Result<std::vector<float>> Session::embed(std::string_view text, const Settings& settings) {
  return guarded([&]() -> Result<std::vector<float>> {
    request::Pooling pooling;
    OptionSet known;
    declare_pooling(known, pooling);
    if (Status status = set_values(known, settings); !status) return status.error();
    if (!has_tokenizer()) return no_tokenizer();
    Result<std::vector<Token>> tokens = encode_text(text);
    if (!tokens) return tokens.error();
    if (room_after(tokens->size()) < 0) return too_long(tokens->size(), setup().context);
    engine::Submission submission;
    submission.request.task = pooling;
    submission.request.prompt = std::move(*tokens);
    Result<RunningRequest> running = RunningRequest::start(engine(), std::move(submission));
    if (!running) return running.error();
    std::vector<float> values;
    while (true) {
      std::optional<engine::Event> event = running->next();
      if (!event) continue;
      if (auto* embedding = std::get_if<engine::Embedding>(&*event)) values = std::move(embedding->values);
      const auto* finished = std::get_if<engine::Finished>(&*event);
      if (finished == nullptr) continue;
      if (finished->error) return *finished->error;
      return values;
    }
  });
}

Result<std::vector<Token>> Session::tokenize(std::string_view text, const Settings& settings) const {
  return guarded([&]() -> Result<std::vector<Token>> {
    tokenizer::EncodeOptions encode;
    OptionSet known;
    declare_encoding(known, encode);
    if (Status status = set_values(known, settings); !status) return status.error();
    if (!has_tokenizer()) return no_tokenizer();
    return tokenizer().encode(text, encode);
  });
}

Result<std::string> Session::detokenize(const std::vector<Token>& tokens, const Settings& settings) const {
  return guarded([&]() -> Result<std::string> {
    bool skips_special = false;
    OptionSet known;
    declare_decoding(known, skips_special);
    if (Status status = set_values(known, settings); !status) return status.error();
    if (!has_tokenizer()) return no_tokenizer();
    const int64_t vocab = tokenizer().vocab_size();
    for (const Token token : tokens)
      if (token < 0 || token >= vocab)
        return Error{ErrorCode::InvalidArgument, fmt::format("token {} is not in [0, {})", token, vocab)};
    return tokenizer().decode(tokens, skips_special);
  });
}

}  // namespace sluice::llm
