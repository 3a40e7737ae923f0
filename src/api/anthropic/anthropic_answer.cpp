#include "api/anthropic/anthropic_answer.h"

namespace sluice::api {

namespace {

std::string_view stop_name(const engine::ChoiceEnd& end) {
  if (end.reason == engine::FinishReason::Length) return "max_tokens";
  return end.stop_string.empty() ? "end_turn" : "stop_sequence";
}

json::value stop_sequence(const engine::ChoiceEnd& end) {
  return end.stop_string.empty() ? json::value(nullptr) : json::value(end.stop_string);
}

// Tokens that were found in the cache are not counted as input.
json::object anthropic_usage(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.generated_tokens}};
}

json::object message(const AnswerSetup& setup) {
  return {{"id", setup.id("msg_")},   {"type", "message"},        {"role", "assistant"},
          {"model", setup.model->id}, {"content", json::array()}, {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

void append(std::string& out, std::string_view type, json::object data) {
  json::object all{{"type", json::string(type)}};
  for (auto& [key, value] : data) all[key] = std::move(value);
  append_event(out, type, all);
}

}  // namespace

std::string MessageAnswer::compose() const {
  const Choice& choice = parts().front().choices.front();
  json::object out = message(setup());
  out["content"] = {{{"type", "text"}, {"text", choice.text}}};
  out["stop_reason"] = json::string(stop_name(choice.end));
  out["stop_sequence"] = stop_sequence(choice.end);
  out["usage"] = anthropic_usage(usage());
  return write_json(out);
}

void MessageStream::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  json::object start = message(setup());
  start["usage"] = anthropic_usage({.prompt_tokens = setup().prompt_tokens()});
  append(out, "message_start", {{"message", std::move(start)}});
  append(out, "content_block_start", {{"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
}

void MessageStream::on_delta(size_t, const engine::Delta& delta, std::string& out) {
  begin(out);
  if (delta.text.empty()) return;
  append(out, "content_block_delta",
         {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", delta.text}}}});
}

void MessageStream::on_choice_end(size_t, const engine::ChoiceEnd& end, std::string& out) {
  begin(out);
  end_ = end;
  append(out, "content_block_stop", {{"index", 0}});
}

void MessageStream::on_complete(std::string& out) {
  begin(out);
  append(out, "message_delta",
         {{"delta", {{"stop_reason", json::string(stop_name(end_))}, {"stop_sequence", stop_sequence(end_)}}},
          {"usage", anthropic_usage(usage())}});
  append(out, "message_stop", {});
}

void MessageStream::on_failure(const ApiError& error, std::string& out) {
  out += "event: error\n";
  append_event(out, write_error(Dialect::Anthropic, error, setup().request_id));
}

}  // namespace sluice::api
