#include "api/openai/responses_answer.h"

namespace sluice::api {

namespace {

using engine::FinishReason;

json::object part_json(const std::string& text, json::array logprobs) {
  return {{"type", "output_text"},
          {"annotations", json::array()},
          {"logprobs", std::move(logprobs)},
          {"text", text}};
}

json::object item_json(const AnswerSetup& setup, std::string_view status, json::array content) {
  return {{"id", setup.id("msg_")},
          {"type", "message"},
          {"status", json::string(status)},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

json::array logprobs_json(const AnswerSetup& setup, const std::vector<request::Sampled>& tokens) {
  json::array out;
  if (!setup.wants_logprobs()) return out;
  const TokenNames names{*setup.model->tokenizer, setup.parsed.tokens_as_ids};
  for (const request::Sampled& token : tokens) out.push_back(token_logprob(token, names));
  return out;
}

json::object response_usage(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
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
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", said(setup, "effort", nullptr)}, {"summary", nullptr}}},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", parsed.temperature.value_or(1)},
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", "auto"},
          {"tools", json::array()},
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
  json::array content{part_json(choice.text, logprobs_json(setup(), choice.tokens))};
  out["output"] = json::array{item_json(setup(), status, std::move(content))};
  out["usage"] = response_usage(usage());
  return write_json(out);
}

void ResponseStream::append(std::string_view type, json::object data, std::string& out) {
  json::object all{{"type", json::string(type)}, {"sequence_number", next_number_++}};
  for (auto& [key, value] : data) all[key] = std::move(value);
  append_event(out, type, all);
}

void ResponseStream::append_part(std::string_view type, json::object data, std::string& out) {
  json::object all{{"item_id", setup().id("msg_")}, {"output_index", 0}, {"content_index", 0}};
  for (auto& [key, value] : data) all[key] = std::move(value);
  append(type, std::move(all), out);
}

json::object ResponseStream::item(std::string_view status) const {
  return item_json(setup(), status, {part_json(text_, logprobs_)});
}

void ResponseStream::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  for (const char* type : {"response.created", "response.in_progress"})
    append(type, {{"response", response_json(setup(), "in_progress")}}, out);
  append("response.output_item.added",
         {{"output_index", 0}, {"item", item_json(setup(), "in_progress", json::array())}}, out);
  append_part("response.content_part.added", {{"part", part_json("", {})}}, out);
}

void ResponseStream::on_delta(size_t, const engine::Delta& delta, std::string& out) {
  begin(out);
  json::array logprobs = logprobs_json(setup(), delta.tokens);
  if (delta.text.empty() && logprobs.empty()) return;
  text_ += delta.text;
  logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  append_part("response.output_text.delta", {{"delta", delta.text}, {"logprobs", std::move(logprobs)}}, out);
}

void ResponseStream::on_choice_end(size_t, const engine::ChoiceEnd& end, std::string& out) {
  begin(out);
  end_ = end;
  append_part("response.output_text.done", {{"text", text_}, {"logprobs", logprobs_}}, out);
  append_part("response.content_part.done", {{"part", part_json(text_, logprobs_)}}, out);
  append("response.output_item.done", {{"output_index", 0}, {"item", item(status_name(end))}}, out);
}

void ResponseStream::on_complete(std::string& out) {
  const std::string_view status = status_name(end_);
  json::object response = response_json(setup(), status);
  response["output"] = json::array{item(status)};
  response["usage"] = response_usage(usage());
  append("response." + std::string(status), {{"response", std::move(response)}}, out);
}

void ResponseStream::on_failure(const ApiError& error, std::string& out) {
  json::object response = response_json(setup(), "failed");
  response["error"] = {{"code", error.code}, {"message", error.message}};
  append("response.failed", {{"response", std::move(response)}}, out);
}

}  // namespace sluice::api
