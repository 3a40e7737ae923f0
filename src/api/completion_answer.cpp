#include "api/completion_answer.h"

namespace sluice::api {

namespace {

std::string prompt_text(const AnswerSetup& setup, size_t index) {
  return setup.model->tokenizer->decode(setup.prompts[index], setup.draft.skip_special_tokens);
}

void add_prompt(const std::vector<Token>& prompt, const std::vector<sched::Sampled>& logprobs,
                CompletionLogprobs& out) {
  if (!prompt.empty()) out.add_first(prompt.front());
  for (const sched::Sampled& token : logprobs) out.add(token);
}

}  // namespace

json::object CompletionAnswer::choice_json(size_t index, size_t number) const {
  const Part& part = parts()[index];
  const Choice& choice = part.choices[number];
  const TokenNames names{*setup().model->tokenizer, draft().tokens_as_ids};
  json::object out{{"index", index * static_cast<size_t>(draft().n) + number},
                   {"text", (draft().echo ? prompt_text(setup(), index) : std::string()) + choice.text},
                   {"logprobs", nullptr},
                   {"finish_reason", json::string(finish_reason(choice.end.reason))},
                   {"stop_reason", stop_reason(choice.end, draft())}};
  if (setup().wants_logprobs()) {
    CompletionLogprobs logprobs(names);
    if (draft().echo) add_prompt(setup().prompts[index], part.prompt_logprobs, logprobs);
    for (const sched::Sampled& token : choice.tokens) logprobs.add(token);
    out["logprobs"] = logprobs.release();
  }
  if (draft().prompt_logprobs) out["prompt_logprobs"] = prompt_logprobs_json(part.prompt_logprobs, names);
  if (draft().return_token_ids) {
    out["token_ids"] = ids_json(choice.tokens);
    out["prompt_token_ids"] = ids_json(setup().prompts[index]);
  }
  return out;
}

std::string CompletionAnswer::compose() const {
  json::array choices;
  for (size_t i = 0; i < parts().size(); ++i) {
    for (size_t number = 0; number < parts()[i].choices.size(); ++number)
      choices.push_back(choice_json(i, number));
  }
  const json::object out{{"id", setup().id("cmpl-")},
                         {"object", "text_completion"},
                         {"created", setup().created},
                         {"model", setup().model->id},
                         {"choices", std::move(choices)},
                         {"usage", usage_json(usage())},
                         {"system_fingerprint", json::string(system_fingerprint())},
                         {"timings", timings_json(usage(), timings())}};
  return write_json(out);
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
  if (draft().echo && !progress.echoed) add_echo(index, shown, progress.logprobs);
  progress.echoed = true;
  if (setup().wants_logprobs())
    for (const sched::Sampled& token : shown.tokens) progress.logprobs.add(token);
  const bool ids = draft().return_token_ids && !shown.tokens.empty();
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
          {"stop_reason", stop_reason(end, draft())}};
}

}  // namespace sluice::api
