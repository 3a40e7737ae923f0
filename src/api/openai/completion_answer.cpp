#include "api/openai/completion_answer.h"

#include "api/prompt/compression.h"

#include <algorithm>

namespace sluice::api {

namespace {

std::string prompt_text(const AnswerSetup& setup, size_t index) {
  return setup.model->tokenizer->decode(setup.prompts[index], setup.parsed.skip_special_tokens);
}

void add_prompt(const std::vector<Token>& prompt, const std::vector<request::Sampled>& logprobs,
                CompletionLogprobs& out) {
  if (!prompt.empty()) out.add_first(prompt.front());
  for (const request::Sampled& token : logprobs) out.add(token);
}

}  // namespace

// The prompt's log-probabilities are the same for all choices of a prompt; the first one has them.
void CompletionAnswer::add_choice(size_t index, size_t number, std::deque<Piece>& out) const {
  const Part& part = parts()[index];
  const Choice& choice = part.choices[number];
  const std::vector<Token>& prompt = setup().prompts[index];
  const TokenNames names{*setup().model->tokenizer, parsed().tokens_as_ids};
  out.emplace_back([=, this, &choice](std::string& text) {
    text += index == 0 && number == 0 ? "{" : ",{";
    append_members({{"index", index * static_cast<size_t>(parsed().n) + number},
                    {"text", (parsed().echo ? prompt_text(setup(), index) : std::string()) + choice.text}},
                   text);
    if (!setup().wants_logprobs()) text += ",\"logprobs\":null";
  });
  if (setup().wants_logprobs()) {
    std::vector<LogprobRun> runs;
    if (parsed().echo)
      runs.push_back({std::span(prompt).first(std::min<size_t>(1, prompt.size())), part.prompt_logprobs});
    runs.push_back({{}, choice.tokens});
    add_completion_logprobs(runs, names, out);
  }
  out.emplace_back([=, this, &choice](std::string& text) {
    text += ',';
    append_members({{"finish_reason", json::string(finish_reason(choice.end.reason))},
                    {"stop_reason", stop_reason(choice.end, parsed())}},
                   text);
    if (parsed().prompt_logprobs && number > 0) text += ",\"prompt_logprobs\":null";
  });
  if (parsed().prompt_logprobs && number == 0) add_prompt_logprobs(part.prompt_logprobs, names, out);
  out.emplace_back([=, this, &choice, &prompt](std::string& text) {
    if (parsed().return_token_ids) {
      text += ',';
      append_members({{"token_ids", ids_json(choice.tokens)}, {"prompt_token_ids", ids_json(prompt)}}, text);
    }
    text += '}';
  });
}

std::deque<Piece> CompletionAnswer::pieces() const {
  std::deque<Piece> out;
  out.emplace_back([this](std::string& text) {
    text += '{';
    append_members({{"id", setup().id("cmpl-")},
                    {"object", "text_completion"},
                    {"created", setup().created},
                    {"model", setup().model->id}},
                   text);
    text += ",\"choices\":[";
  });
  for (size_t i = 0; i < parts().size(); ++i) {
    for (size_t number = 0; number < parts()[i].choices.size(); ++number) add_choice(i, number, out);
  }
  out.emplace_back([this](std::string& text) {
    text += "],";
    append_members({{"usage", with_compression(setup(), usage_json(usage()))},
                    {"system_fingerprint", json::string(system_fingerprint())},
                    {"timings", timings_json(usage(), timings())}},
                   text);
    text += '}';
  });
  return out;
}

CompletionStream::CompletionStream(AnswerSetup setup)
    : OpenAiStream(std::move(setup), "cmpl-", "text_completion"),
      prompt_logprobs_(this->setup().prompts.size()),
      progress_(number(this->setup().prompts.size(), 0), Progress{CompletionLogprobs(names())}) {}

void CompletionStream::begin_choice(size_t, int, std::string&) {}

// The prompt comes with the first piece of a choice: only then are all of its log-probabilities there.
void CompletionStream::add_echo(size_t index, engine::Delta& delta, CompletionLogprobs& logprobs) {
  delta.text.insert(0, prompt_text(setup(), index));
  if (setup().wants_logprobs()) add_prompt(setup().prompts[index], prompt_logprobs_[index], logprobs);
}

std::vector<json::object> CompletionStream::chunks(size_t index, const AnswerDelta& delta) {
  json::object made = piece(index, delta.raw);
  if (made.empty()) return {};
  return {std::move(made)};
}

// Empty: there is nothing to say.
json::object CompletionStream::piece(size_t index, const engine::Delta& delta) {
  prompt_logprobs_[index].insert(prompt_logprobs_[index].end(), delta.prompt_logprobs.begin(),
                                 delta.prompt_logprobs.end());
  if (delta.tokens.empty() && delta.text.empty()) return {};
  Progress& progress = progress_[number(index, delta.choice)];
  engine::Delta shown{.choice = delta.choice};
  if (!setup().prompt_alone()) {
    shown.text = delta.text;
    shown.tokens = delta.tokens;
  }
  if (parsed().echo && !progress.echoed) add_echo(index, shown, progress.logprobs);
  progress.echoed = true;
  if (setup().wants_logprobs())
    for (const request::Sampled& token : shown.tokens) progress.logprobs.add(token);
  const bool ids = parsed().return_token_ids && !shown.tokens.empty();
  if (shown.text.empty() && progress.logprobs.empty() && !ids) return {};
  json::object out{{"index", number(index, delta.choice)},
                   {"text", std::move(shown.text)},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr}};
  if (!progress.logprobs.empty()) out["logprobs"] = progress.logprobs.release();
  if (ids) out["token_ids"] = ids_json(shown.tokens);
  return out;
}

json::object CompletionStream::last_piece(size_t index, const engine::ChoiceEnd& end) {
  return {{"index", number(index, end.choice)},
          {"text", ""},
          {"logprobs", nullptr},
          {"finish_reason", json::string(finish_reason(end.reason))},
          {"stop_reason", stop_reason(end, parsed())}};
}

}  // namespace sluice::api
