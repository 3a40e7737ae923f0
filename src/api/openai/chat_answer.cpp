#include "api/openai/chat_answer.h"

#include "api/prompt/compression.h"

namespace sluice::api {

namespace {

json::object message_json(std::string content, const std::string& reasoning,
                          const std::vector<chat::ToolCall>& calls) {
  const bool calls_alone = content.empty() && !calls.empty();
  json::object message{{"role", "assistant"},
                       {"content", calls_alone ? json::value(nullptr) : json::value(std::move(content))},
                       {"refusal", nullptr}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (calls.empty()) return message;
  json::array& list = message["tool_calls"].emplace_array();
  for (const chat::ToolCall& call : calls) list.push_back(call_json(call));
  return message;
}

json::object delta_json(const chat::OutputPiece& piece) {
  if (const auto* content = std::get_if<chat::ContentPiece>(&piece)) return {{"content", content->text}};
  if (const auto* thought = std::get_if<chat::ReasoningPiece>(&piece))
    return {{"reasoning_content", thought->text}};
  json::object call;
  if (const auto* begin = std::get_if<chat::CallPiece>(&piece)) {
    call = call_json({begin->name, begin->id, ""});
    call["index"] = begin->call;
  } else {
    const auto& part = std::get<chat::ArgumentsPiece>(piece);
    call = {{"index", part.call}, {"function", {{"arguments", part.text}}}};
  }
  return {{"tool_calls", json::array{std::move(call)}}};
}

}  // namespace

void ChatAnswer::add_choice(size_t index, std::deque<Piece>& out) const {
  const Choice& choice = parts().front().choices[index];
  const bool logprobs = setup().wants_logprobs();
  out.emplace_back([=, this, &choice](std::string& text) {
    text += index == 0 ? "{" : ",{";
    append_members({{"index", index},
                    {"message", message_json(setup().echoed + choice.text, choice.reasoning, choice.calls)}},
                   text);
    text += logprobs ? ",\"logprobs\":{\"content\":[" : ",\"logprobs\":null";
  });
  const TokenNames names{*setup().model->tokenizer, parsed().tokens_as_ids};
  if (logprobs)
    add_runs(choice.tokens, out, [names](const request::Sampled& token, bool is_first, std::string& text) {
      text += is_first ? "" : ",";
      write_json(token_logprob(token, names), text);
    });
  out.emplace_back([=, this, &choice](std::string& text) {
    text += logprobs ? "],\"refusal\":null}," : ",";
    json::object rest{
        {"finish_reason", json::string(finish_reason(choice.end.reason, !choice.calls.empty()))},
        {"stop_reason", stop_reason(choice.end, parsed())}};
    if (parsed().return_token_ids) rest["token_ids"] = ids_json(choice.tokens);
    append_members(rest, text);
    text += '}';
  });
}

std::deque<Piece> ChatAnswer::pieces() const {
  const Part& part = parts().front();
  std::deque<Piece> out;
  out.emplace_back([this](std::string& text) {
    text += '{';
    append_members({{"id", setup().id("chatcmpl-")},
                    {"object", "chat.completion"},
                    {"created", setup().created},
                    {"model", setup().model->id}},
                   text);
    text += ",\"choices\":[";
  });
  for (size_t i = 0; i < part.choices.size(); ++i) add_choice(i, out);
  out.emplace_back([this](std::string& text) {
    text += "],";
    append_members({{"usage", with_compression(setup(), usage_json(usage(), reasoning_tokens()))},
                    {"system_fingerprint", json::string(system_fingerprint())},
                    {"service_tier", nullptr}},
                   text);
  });
  if (parsed().prompt_logprobs)
    add_prompt_logprobs(part.prompt_logprobs, {*setup().model->tokenizer, parsed().tokens_as_ids}, out);
  out.emplace_back([this](std::string& text) {
    json::object rest;
    if (parsed().return_token_ids) rest["prompt_token_ids"] = ids_json(setup().prompts.front());
    rest["timings"] = timings_json(usage(), timings());
    text += ',';
    append_members(rest, text);
    text += '}';
  });
  return out;
}

void ChatStream::begin_choice(size_t index, int choice, std::string& out) {
  const auto chunk = [&](json::object delta) {
    append_chunk({{"index", number(index, choice)},
                  {"delta", std::move(delta)},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}},
                 out);
  };
  chunk({{"role", "assistant"}, {"content", ""}});
  if (!setup().echoed.empty()) chunk({{"content", setup().echoed}});
}

std::vector<json::object> ChatStream::chunks(size_t index, const AnswerDelta& delta) {
  const bool logprobs = setup().wants_logprobs() && !delta.raw.tokens.empty();
  const bool ids = parsed().return_token_ids && !delta.raw.tokens.empty();
  std::vector<json::object> out;
  const auto add = [&](json::object content) {
    out.push_back({{"index", number(index, delta.raw.choice)},
                   {"delta", std::move(content)},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr}});
  };
  for (const chat::OutputPiece& piece : delta.pieces) add(delta_json(piece));
  if (out.empty() && (logprobs || ids)) add({{"content", ""}});
  if (logprobs) out.front()["logprobs"] = chat_logprobs(delta.raw.tokens, names());
  if (ids) out.front()["token_ids"] = ids_json(delta.raw.tokens);
  return out;
}

json::object ChatStream::last_piece(size_t index, const engine::ChoiceEnd& end) {
  return {{"index", number(index, end.choice)},
          {"delta", json::object()},
          {"logprobs", nullptr},
          {"finish_reason", json::string(finish_reason(end.reason, has_called(index, end.choice)))},
          {"stop_reason", stop_reason(end, parsed())}};
}

}  // namespace sluice::api
