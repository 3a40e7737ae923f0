#include "api/chat_answer.h"

namespace sluice::api {

json::object ChatAnswer::choice_json(size_t index, const Choice& choice) const {
  const TokenNames names{*setup().model->tokenizer, draft().tokens_as_ids};
  json::object out{
      {"index", index},
      {"message", {{"role", "assistant"}, {"content", setup().echoed + choice.text}, {"refusal", nullptr}}},
      {"logprobs", nullptr},
      {"finish_reason", json::string(finish_reason(choice.end.reason))},
      {"stop_reason", stop_reason(choice.end, draft())}};
  if (setup().wants_logprobs()) out["logprobs"] = chat_logprobs(choice.tokens, names);
  if (draft().return_token_ids) out["token_ids"] = ids_json(choice.tokens);
  return out;
}

std::string ChatAnswer::compose() const {
  const Part& part = parts().front();
  json::array choices;
  for (size_t i = 0; i < part.choices.size(); ++i) choices.push_back(choice_json(i, part.choices[i]));
  json::object out{{"id", setup().id("chatcmpl-")},
                   {"object", "chat.completion"},
                   {"created", setup().created},
                   {"model", setup().model->id},
                   {"choices", std::move(choices)},
                   {"usage", usage_json(usage())},
                   {"system_fingerprint", json::string(system_fingerprint())},
                   {"service_tier", nullptr}};
  if (draft().prompt_logprobs)
    out["prompt_logprobs"] =
        prompt_logprobs_json(part.prompt_logprobs, {*setup().model->tokenizer, draft().tokens_as_ids});
  if (draft().return_token_ids) out["prompt_token_ids"] = ids_json(setup().prompts.front());
  out["timings"] = timings_json(usage(), timings());
  return write_json(out);
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
  const bool ids = draft().return_token_ids && !delta.tokens.empty();
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
          {"stop_reason", stop_reason(end, draft())}};
}

}  // namespace sluice::api
