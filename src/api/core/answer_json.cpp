#include "api/core/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/version.h"
#include "unicode/utf8_stream.h"

namespace sluice::api {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

namespace {

double rate(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

}  // namespace

std::string_view system_fingerprint() {
  static const std::string text = "sluice-" + std::string(build_info().version);
  return text;
}

std::string_view finish_reason(engine::FinishReason reason) {
  return reason == engine::FinishReason::Length ? "length" : "stop";
}

json::value stop_reason(const engine::ChoiceEnd& end, const ParsedRequest& parsed) {
  if (!end.stop_string.empty()) return json::value(end.stop_string);
  const auto& tokens = parsed.stop_tokens;
  if (end.stop_token && std::find(tokens.begin(), tokens.end(), *end.stop_token) != tokens.end())
    return json::value(*end.stop_token);
  return nullptr;
}

std::string_view finish_reason(engine::FinishReason reason, bool has_called) {
  return has_called && reason == engine::FinishReason::Stop ? "tool_calls" : finish_reason(reason);
}

json::object call_json(const chat::ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

json::object output_details(const engine::Usage& usage, int reasoning_tokens) {
  json::object out{{"reasoning_tokens", reasoning_tokens}};
  if (usage.drafted_tokens == 0) return out;
  out["accepted_prediction_tokens"] = usage.accepted_drafts;
  out["rejected_prediction_tokens"] = usage.drafted_tokens - usage.accepted_drafts;
  return out;
}

json::object usage_json(const engine::Usage& usage, int reasoning_tokens) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.generated_tokens},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", output_details(usage, reasoning_tokens)}};
}

json::object timings_json(const engine::Usage& usage, const engine::Timings& timings) {
  const int computed = usage.prompt_tokens - usage.cached_tokens;
  const double prompt = std::max(0.0, timings.ttft - timings.queue);
  const double predicted = std::max(0.0, timings.latency - timings.ttft);
  const auto each = [](double seconds, int count) { return count > 0 ? seconds * 1e3 / count : 0.0; };
  json::object out{{"cache_n", usage.cached_tokens},
                   {"prompt_n", computed},
                   {"prompt_ms", prompt * 1e3},
                   {"prompt_per_token_ms", each(prompt, computed)},
                   {"prompt_per_second", rate(computed, prompt)},
                   {"predicted_n", usage.generated_tokens},
                   {"predicted_ms", predicted * 1e3},
                   {"predicted_per_token_ms", each(predicted, usage.generated_tokens)},
                   {"predicted_per_second", rate(usage.generated_tokens, predicted)}};
  if (usage.drafted_tokens > 0) {
    out["draft_n"] = usage.drafted_tokens;
    out["draft_n_accepted"] = usage.accepted_drafts;
  }
  return out;
}

json::array ids_json(std::span<const Token> tokens) {
  json::array out;
  for (const Token token : tokens) out.push_back(token);
  return out;
}

json::array ids_json(std::span<const request::Sampled> tokens) {
  json::array out;
  for (const request::Sampled& token : tokens) out.push_back(token.token);
  return out;
}

std::string TokenNames::text(Token token) const {
  if (as_ids) return fmt::format("token_id:{}", token);
  const std::string_view bytes = tokenizer.piece_bytes(token);
  return unicode::to_valid_utf8(bytes.empty() ? tokenizer.spelling(token) : bytes);
}

json::array TokenNames::bytes(Token token) const {
  json::array out;
  const std::string_view bytes = tokenizer.piece_bytes(token);
  for (const char c : bytes.empty() ? tokenizer.spelling(token) : bytes)
    out.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return out;
}

double shortest(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  double out = 0;
  std::from_chars(text, end.ptr, out);
  return out;
}

double finite(float logprob) {
  return std::isfinite(logprob) ? shortest(logprob) : -9999.0;
}

json::object token_logprob(const request::Sampled& token, const TokenNames& names) {
  const auto entry = [&](Token id, float logprob) {
    return json::object{{"token", names.text(id)}, {"logprob", finite(logprob)}, {"bytes", names.bytes(id)}};
  };
  json::object out = entry(token.token, token.logprob);
  json::array top;
  for (const request::TokenLogprob& other : token.top) top.push_back(entry(other.token, other.logprob));
  out["top_logprobs"] = std::move(top);
  return out;
}

json::object chat_logprobs(std::span<const request::Sampled> tokens, const TokenNames& names) {
  json::array content;
  for (const request::Sampled& token : tokens) content.push_back(token_logprob(token, names));
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void CompletionLogprobs::add_name(Token token) {
  const std::string text = names_.text(token);
  tokens_.push_back(json::string(text));
  offsets_.push_back(offset_);
  offset_ += count_characters(text);
}

void CompletionLogprobs::add_first(Token token) {
  add_name(token);
  logprobs_.push_back(nullptr);
  top_.push_back(nullptr);
}

void CompletionLogprobs::add(const request::Sampled& token) {
  add_name(token.token);
  logprobs_.push_back(finite(token.logprob));
  json::object top;
  for (const request::TokenLogprob& other : token.top)
    top.emplace(names_.text(other.token), finite(other.logprob));
  top.emplace(names_.text(token.token), finite(token.logprob));
  top_.push_back(std::move(top));
}

json::object CompletionLogprobs::release() {
  json::object out{{"tokens", std::move(tokens_)},
                   {"token_logprobs", std::move(logprobs_)},
                   {"top_logprobs", std::move(top_)},
                   {"text_offset", std::move(offsets_)}};
  tokens_.clear(), logprobs_.clear(), top_.clear(), offsets_.clear();
  return out;
}

void append_event(std::string& out, std::string_view data) {
  out += "data: ";
  out += data;
  out += "\n\n";
}

void append_event(std::string& out, std::string_view name, const json::object& data) {
  out += "event: ";
  out += name;
  out += '\n';
  append_event(out, write_json(data));
}

}  // namespace sluice::api
