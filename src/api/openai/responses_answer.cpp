#include "api/openai/responses_answer.h"

#include "api/prompt/compression.h"

namespace sluice::api {

namespace {

using engine::FinishReason;

json::object part_json(const std::string& text, json::array logprobs) {
  return {{"type", "output_text"},
          {"annotations", json::array()},
          {"logprobs", std::move(logprobs)},
          {"text", text}};
}

json::object reasoning_part(const std::string& text) {
  return {{"type", "reasoning_text"}, {"text", text}};
}

// `status` in_progress: nothing of it is there yet.
json::object item_json(const ResponseItem& item, std::string_view status) {
  const bool is_begun = status != "in_progress";
  json::array content;
  switch (item.kind) {
    case ResponseItem::Kind::Reasoning:
      if (is_begun) content.push_back(reasoning_part(item.text));
      return {{"id", item.id},
              {"type", "reasoning"},
              {"status", json::string(status)},
              {"summary", json::array()},
              {"content", std::move(content)}};
    case ResponseItem::Kind::Call:
      return {{"id", item.id},           {"type", "function_call"}, {"status", json::string(status)},
              {"call_id", item.call.id}, {"name", item.call.name},  {"arguments", item.text}};
    case ResponseItem::Kind::Message:
      break;
  }
  if (is_begun) content.push_back(part_json(item.text, item.logprobs));
  return {{"id", item.id},
          {"type", "message"},
          {"status", json::string(status)},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

std::string call_item_id(const AnswerSetup& setup, size_t number) {
  return setup.id("fc_") + "_" + std::to_string(number);
}

json::array logprobs_json(const AnswerSetup& setup, const std::vector<request::Sampled>& tokens) {
  json::array out;
  if (!setup.wants_logprobs()) return out;
  const TokenNames names{*setup.model->tokenizer, setup.parsed.tokens_as_ids};
  for (const request::Sampled& token : tokens) out.push_back(token_logprob(token, names));
  return out;
}

json::object response_usage(const engine::Usage& usage, int reasoning_tokens) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.generated_tokens},
          {"output_tokens_details", output_details(usage, reasoning_tokens)},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens}};
}

std::string_view status_name(const engine::ChoiceEnd& end) {
  return end.reason == FinishReason::Length ? "incomplete" : "completed";
}

// What the request said, or the default.
json::value said(const AnswerSetup& setup, std::string_view name, json::value otherwise) {
  const json::value* value = setup.parsed.echoed.if_contains(name);
  return value == nullptr ? std::move(otherwise) : *value;
}

json::object response_json(const AnswerSetup& setup, std::string_view status) {
  const ParsedRequest& parsed = setup.parsed;
  return {{"id", setup.id("resp_")},
          {"object", "response"},
          {"created_at", setup.created},
          {"status", json::string(status)},
          {"background", false},
          {"error", nullptr},
          {"incomplete_details",
           status == "incomplete" ? json::value{{"reason", "max_output_tokens"}} : json::value(nullptr)},
          {"instructions", said(setup, "instructions", nullptr)},
          {"max_output_tokens", parsed.max_tokens ? json::value(*parsed.max_tokens) : json::value(nullptr)},
          {"model", setup.model->id},
          {"output", json::array()},
          {"parallel_tool_calls", parsed.tools.parallel},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", said(setup, "effort", nullptr)}, {"summary", nullptr}}},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", parsed.temperature.value_or(1)},
          {"text", {{"format", said(setup, "format", {{"type", "text"}})}}},
          {"tool_choice", said(setup, "tool_choice", "auto")},
          {"tools", said(setup, "tools", json::array())},
          {"top_logprobs", parsed.top_logprobs.value_or(0)},
          {"top_p", parsed.top_p.value_or(1)},
          {"truncation", said(setup, "truncation", "disabled")},
          {"usage", nullptr},
          {"user", nullptr},
          {"metadata", said(setup, "metadata", json::object())}};
}

}  // namespace

std::string ResponseAnswer::compose() const {
  const Choice& choice = parts().front().choices.front();
  const std::string_view status = status_name(choice.end);
  json::object out = response_json(setup(), status);
  json::array items;
  if (!choice.reasoning.empty())
    items.push_back(item_json({ResponseItem::Kind::Reasoning, setup().id("rs_"), choice.reasoning}, status));
  if (!choice.text.empty() || choice.calls.empty())
    items.push_back(item_json({ResponseItem::Kind::Message,
                               setup().id("msg_"),
                               choice.text,
                               {},
                               logprobs_json(setup(), choice.tokens)},
                              status));
  for (size_t i = 0; i < choice.calls.size(); ++i)
    items.push_back(item_json(
        {ResponseItem::Kind::Call, call_item_id(setup(), i), choice.calls[i].arguments, choice.calls[i]},
        status));
  out["output"] = std::move(items);
  out["usage"] = with_compression(setup(), response_usage(usage(), reasoning_tokens()));
  return write_json(out);
}

void ResponseStream::append(std::string_view type, json::object data, std::string& out) {
  json::object all{{"type", json::string(type)}, {"sequence_number", next_number_++}};
  for (auto& [key, value] : data) all[key] = std::move(value);
  append_event(out, type, all);
}

void ResponseStream::append_part(std::string_view type, json::object data, std::string& out) {
  json::object all{{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
  if (items_.back().kind != ResponseItem::Kind::Call) all["content_index"] = 0;
  for (auto& [key, value] : data) all[key] = std::move(value);
  append(type, std::move(all), out);
}

void ResponseStream::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  for (const char* type : {"response.created", "response.in_progress"})
    append(type, {{"response", response_json(setup(), "in_progress")}}, out);
  // The message of an answer that holds nothing else is there before its first word.
  if (!setup().output) open(ResponseItem::Kind::Message, out);
}

ResponseItem& ResponseStream::open(ResponseItem::Kind kind, std::string& out) {
  if (!is_open_ || items_.back().kind != kind)
    begin_item({kind, setup().id(kind == ResponseItem::Kind::Reasoning ? "rs_" : "msg_")}, out);
  return items_.back();
}

void ResponseStream::begin_item(ResponseItem item, std::string& out) {
  end_item("completed", out);
  is_open_ = true;
  items_.push_back(std::move(item));
  append("response.output_item.added",
         {{"output_index", items_.size() - 1}, {"item", item_json(items_.back(), "in_progress")}}, out);
  if (items_.back().kind == ResponseItem::Kind::Message)
    append_part("response.content_part.added", {{"part", part_json("", {})}}, out);
  if (items_.back().kind == ResponseItem::Kind::Reasoning)
    append_part("response.content_part.added", {{"part", reasoning_part("")}}, out);
}

void ResponseStream::end_item(std::string_view status, std::string& out) {
  if (!is_open_) return;
  is_open_ = false;
  const ResponseItem& item = items_.back();
  if (item.kind == ResponseItem::Kind::Message) {
    append_part("response.output_text.done", {{"text", item.text}, {"logprobs", item.logprobs}}, out);
    append_part("response.content_part.done", {{"part", part_json(item.text, item.logprobs)}}, out);
  } else if (item.kind == ResponseItem::Kind::Reasoning) {
    append_part("response.reasoning_text.done", {{"text", item.text}}, out);
    append_part("response.content_part.done", {{"part", reasoning_part(item.text)}}, out);
  } else {
    append_part("response.function_call_arguments.done", {{"name", item.call.name}, {"arguments", item.text}},
                out);
  }
  append("response.output_item.done",
         {{"output_index", items_.size() - 1}, {"item", item_json(item, status)}}, out);
}

void ResponseStream::add(const chat::OutputPiece& piece, json::array& logprobs, std::string& out) {
  if (const auto* content = std::get_if<chat::ContentPiece>(&piece)) {
    ResponseItem& item = open(ResponseItem::Kind::Message, out);
    item.text += content->text;
    item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
    append_part("response.output_text.delta", {{"delta", content->text}, {"logprobs", std::move(logprobs)}},
                out);
    logprobs.clear();
  } else if (const auto* thought = std::get_if<chat::ReasoningPiece>(&piece)) {
    open(ResponseItem::Kind::Reasoning, out).text += thought->text;
    append_part("response.reasoning_text.delta", {{"delta", thought->text}}, out);
  } else if (const auto* call = std::get_if<chat::CallPiece>(&piece)) {
    const auto number = static_cast<size_t>(call->call);
    begin_item({ResponseItem::Kind::Call, call_item_id(setup(), number), {}, {call->name, call->id, {}}},
               out);
  } else {
    const std::string& text = std::get<chat::ArgumentsPiece>(piece).text;
    items_.back().text += text;
    append_part("response.function_call_arguments.delta", {{"delta", text}}, out);
  }
}

void ResponseStream::on_delta(size_t, const AnswerDelta& delta, std::string& out) {
  begin(out);
  json::array logprobs = logprobs_json(setup(), delta.raw.tokens);
  for (const chat::OutputPiece& piece : delta.pieces) add(piece, logprobs, out);
  if (!logprobs.empty() && !setup().output) add(chat::ContentPiece{}, logprobs, out);
}

void ResponseStream::on_choice_end(size_t, const engine::ChoiceEnd& end, std::string& out) {
  begin(out);
  end_ = end;
  if (items_.empty()) open(ResponseItem::Kind::Message, out);
  end_item(status_name(end), out);
}

void ResponseStream::on_complete(std::string& out) {
  const std::string_view status = status_name(end_);
  json::object response = response_json(setup(), status);
  json::array output;
  for (size_t i = 0; i < items_.size(); ++i)
    output.push_back(item_json(items_[i], i + 1 < items_.size() ? "completed" : status));
  response["output"] = std::move(output);
  response["usage"] = with_compression(setup(), response_usage(usage(), reasoning_tokens()));
  append("response." + std::string(status), {{"response", std::move(response)}}, out);
}

void ResponseStream::on_failure(const ApiError& error, std::string& out) {
  json::object response = response_json(setup(), "failed");
  response["error"] = {{"code", error.code}, {"message", error.message}};
  append("response.failed", {{"response", std::move(response)}}, out);
}

}  // namespace sluice::api
