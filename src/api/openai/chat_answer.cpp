#include "api/openai/chat_answer.h"

namespace sluice::api {

void ChatAnswer::add_choice(size_t index, std::deque<Piece>& out) const {
  const Choice& choice = parts().front().choices[index];
  const bool logprobs = setup().wants_logprobs();
  out.emplace_back([=, this, &choice](std::string& text) {
    text += index == 0 ? "{" : ",{";
    append_members(
        {{"index", index},
         {"message",
          {{"role", "assistant"}, {"content", setup().echoed + choice.text}, {"refusal", nullptr}}}},
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
    json::object rest{{"finish_reason", json::string(finish_reason(choice.end.reason))},
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
    append_members({{"usage", usage_json(usage())},
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

json::object ChatStream::piece(size_t index, const engine::Delta& delta) {
  const bool logprobs = setup().wants_logprobs() && !delta.tokens.empty();
  const bool ids = parsed().return_token_ids && !delta.tokens.empty();
  if (delta.text.empty() && !logprobs && !ids) return {};
  json::object out{{"index", number(index, delta.choice)},
                   {"delta", {{"content", delta.text}}},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr}};
  if (logprobs) out["logprobs"] = chat_logprobs(delta.tokens, names());
  if (ids) out["token_ids"] = ids_json(delta.tokens);
  return out;
}

json::object ChatStream::last_piece(size_t index, const engine::ChoiceEnd& end) {
  return {{"index", number(index, end.choice)},
          {"delta", json::object()},
          {"logprobs", nullptr},
          {"finish_reason", json::string(finish_reason(end.reason))},
          {"stop_reason", stop_reason(end, parsed())}};
}

}  // namespace sluice::api
