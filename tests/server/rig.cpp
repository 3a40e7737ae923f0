#include "tests/server/rig.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/log.h"

namespace sluice::server {

namespace {

class TestWriter : public api::AnswerWriter {
 public:
  explicit TestWriter(bool stream) : stream_(stream) {}

  std::string_view content_type() const override {
    return stream_ ? "text/event-stream" : "application/json";
  }
  void take(size_t, const engine::Event& event, std::string& out) override {
    if (const auto* delta = std::get_if<engine::Delta>(&event)) {
      tokens_ += delta->tokens.size();
      if (stream_)
        for (const request::Sampled& sampled : delta->tokens)
          out += fmt::format("data: {}\n\n", sampled.token);
      sent_ |= stream_;
    }
    const auto* last = std::get_if<engine::Finished>(&event);
    if (last == nullptr) return;
    if (last->error) return fail(api::to_api_error(*last->error), out);
    out += stream_ ? "data: [DONE]\n\n" : fmt::format("{{\"tokens\":{}}}", tokens_);
    done_ = true;
  }
  bool done() const override { return done_; }
  const api::ApiError* error() const override { return error_ ? &*error_ : nullptr; }
  void fail(const api::ApiError& error, std::string& out) override {
    done_ = true;
    if (sent_) {
      out += "data: error " + error.code + "\n\n";
    } else {
      error_ = error;
    }
  }
  void head_sent() override { sent_ = true; }
  std::string_view ping() const override { return stream_ ? ": ping\n\n" : ""; }

 private:
  bool stream_, done_ = false, sent_ = false;
  size_t tokens_ = 0;
  std::optional<api::ApiError> error_;
};

api::Reply complete(const api::Call& call) {
  const Result<json::value> body = parse_json(call.body, "body");
  if (!body || !body->is_object())
    return api::ApiError{400, "invalid_request_error", "invalid_json", "", "no JSON object", 0};
  const json::object& object = body->get_object();
  if (object.contains("fail"))
    return api::ApiError{400, "invalid_request_error", "invalid_value", "fail", "no", 0};
  if (object.contains("throw")) throw std::runtime_error("thrown by a test");
  if (object.contains("no_memory")) throw std::bad_alloc();
  const auto number = [&](const char* name, int64_t otherwise) {
    return static_cast<int>(get_int(object, name)->value_or(otherwise));
  };
  const bool stream = get_bool(object, "stream")->value_or(false);
  api::EngineJob prepared{&call.models[0], {}, std::make_unique<TestWriter>(stream), stream};
  engine::Submission submission;
  request::SamplingParams sampling;
  sampling.max_tokens = number("max_tokens", 8);
  sampling.ignore_eos = true;
  for (int i = 0; i < number("prompt", 8); ++i)
    submission.request.prompt.push_back(1 + (number("first", 1) + i) % (sim::kVocab - 1));
  submission.request.task = sampling;
  submission.request.client = call.context.client;
  prepared.submissions.push_back(std::move(submission));
  return prepared;
}

api::Reply echo(const api::Call& call) {
  return api::Answer{200, "application/json", fmt::format("{{\"rest\":\"{}\"}}", call.rest)};
}

}  // namespace

std::vector<api::Operation> test_operations() {
  return {{"POST", "/v1/chat/completions", api::Dialect::OpenAi, true, "", complete},
          {"POST", "/v1/messages", api::Dialect::Anthropic, true, "", complete},
          {"GET", "/v1/models/{model}", api::Dialect::OpenAi, true, "", echo},
          {"GET", "/api/version", api::Dialect::Ollama, true, "", echo}};
}

Rig::Rig(RigOptions options) : executor(options.engine.kv_manager) {
  set_log_level(LogLevel::Off);
  if (options.server.port == 8080) options.server.port = 0;
  engine_ = std::make_unique<engine::Engine>(options.engine, executor);
  engine_->start();
  Result<std::unique_ptr<Server>> opened = Server::open(options.server, options.signals, options.operations);
  if (!opened) throw std::runtime_error(opened.error().message);
  server = std::move(*opened);
  Backend backend;
  backend.model.id = "fake";
  backend.engine = engine_.get();
  backend.queue_requests = options.engine.queue.requests;
  server->serve({backend});
}

Rig::~Rig() {
  executor.release();
  server.reset();
  engine_->stop();
}

bool Rig::engine_is_empty() const {
  const engine::Metrics& metrics = engine_->metrics();
  return metrics.running.value() == 0 && metrics.waiting.value() == 0 && metrics.kv_used.value() == 0 &&
         !engine_->health().busy;
}

bool eventually(const std::function<bool()>& holds, double seconds) {
  const TimePoint start = Clock::now();
  while (!holds()) {
    if (seconds_since(start) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string get(const std::string& path, const std::string& fields) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields);
}

std::string post(const std::string& body, const std::string& fields, const std::string& path) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}Content-Length: "
      "{}\r\n\r\n{}",
      path, fields, body.size(), body);
}

std::string stream_of(int tokens, int first) {
  return post(fmt::format(R"({{"stream":true,"max_tokens":{},"first":{}}})", tokens, first));
}

}  // namespace sluice::server
