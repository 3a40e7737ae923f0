#include "api/anthropic/anthropic_answer.h"

#include "api/prompt/compression.h"

namespace sluice::api {

namespace {

std::string_view stop_name(const engine::ChoiceEnd& end, bool has_called) {
  if (end.reason == engine::FinishReason::Length) return "max_tokens";
  if (has_called && end.stop_string.empty()) return "tool_use";
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

json::object text_block(const std::string& text) {
  return {{"type", "text"}, {"text", text}};
}
// There is nobody to check a signature.
json::object thinking_block(const std::string& text) {
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}
json::object tool_block(const std::string& name, const std::string& id) {
  return {{"type", "tool_use"}, {"id", id}, {"name", name}, {"input", json::object()}};
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
  json::array content;
  if (!choice.reasoning.empty()) content.push_back(thinking_block(choice.reasoning));
  if (!choice.text.empty() || choice.calls.empty()) content.push_back(text_block(choice.text));
  for (const chat::ToolCall& call : choice.calls) {
    json::object block = tool_block(call.name, call.id);
    // A call that was cut off has no input that could be read.
    if (Result<json::value> input = parse_json(call.arguments, "arguments"))
      block["input"] = std::move(*input);
    content.push_back(std::move(block));
  }
  out["content"] = std::move(content);
  out["stop_reason"] = json::string(stop_name(choice.end, !choice.calls.empty()));
  out["stop_sequence"] = stop_sequence(choice.end);
  out["usage"] = with_compression(setup(), anthropic_usage(usage()));
  return write_json(out);
}

void MessageStream::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  json::object start = message(setup());
  start["usage"] = anthropic_usage({.prompt_tokens = setup().prompt_tokens()});
  append(out, "message_start", {{"message", std::move(start)}});
  // The first block of an answer that holds nothing but text is open before its first word.
  if (!setup().output) begin_block(Block::Text, text_block(""), out);
}

void MessageStream::begin_block(Block block, json::object content, std::string& out) {
  end_block(out);
  block_ = block;
  append(out, "content_block_start", {{"index", blocks_++}, {"content_block", std::move(content)}});
}

void MessageStream::end_block(std::string& out) {
  if (block_ == Block::Thinking) append_delta({{"type", "signature_delta"}, {"signature", ""}}, out);
  if (block_ != Block::None) append(out, "content_block_stop", {{"index", blocks_ - 1}});
  block_ = Block::None;
}

void MessageStream::append_delta(json::object delta, std::string& out) {
  append(out, "content_block_delta", {{"index", blocks_ - 1}, {"delta", std::move(delta)}});
}

void MessageStream::add(const chat::OutputPiece& piece, std::string& out) {
  if (const auto* content = std::get_if<chat::ContentPiece>(&piece)) {
    if (block_ != Block::Text) begin_block(Block::Text, text_block(""), out);
    append_delta({{"type", "text_delta"}, {"text", content->text}}, out);
  } else if (const auto* thought = std::get_if<chat::ReasoningPiece>(&piece)) {
    if (block_ != Block::Thinking) begin_block(Block::Thinking, thinking_block(""), out);
    append_delta({{"type", "thinking_delta"}, {"thinking", thought->text}}, out);
  } else if (const auto* call = std::get_if<chat::CallPiece>(&piece)) {
    begin_block(Block::ToolUse, tool_block(call->name, call->id), out);
  } else {
    append_delta({{"type", "input_json_delta"}, {"partial_json", std::get<chat::ArgumentsPiece>(piece).text}},
                 out);
  }
}

void MessageStream::on_delta(size_t, const AnswerDelta& delta, std::string& out) {
  begin(out);
  for (const chat::OutputPiece& piece : delta.pieces) add(piece, out);
}

void MessageStream::on_choice_end(size_t, const engine::ChoiceEnd& end, std::string& out) {
  begin(out);
  end_ = end;
  if (blocks_ == 0) begin_block(Block::Text, text_block(""), out);
  end_block(out);
}

void MessageStream::on_complete(std::string& out) {
  begin(out);
  append(out, "message_delta",
         {{"delta",
           {{"stop_reason", json::string(stop_name(end_, has_called(0, 0)))},
            {"stop_sequence", stop_sequence(end_)}}},
          {"usage", with_compression(setup(), anthropic_usage(usage()))}});
  append(out, "message_stop", {});
}

void MessageStream::on_failure(const ApiError& error, std::string& out) {
  out += "event: error\n";
  append_event(out, write_error(Dialect::Anthropic, error, setup().request_id));
}

}  // namespace sluice::api
