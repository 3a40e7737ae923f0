#include "api/openai/openai_stream.h"

#include "api/prompt/compression.h"

namespace sluice::api {

namespace {

std::string chunk_head(const AnswerSetup& setup, std::string_view id_prefix, std::string_view object) {
  const json::object head{{"id", setup.id(id_prefix)},
                          {"object", json::string(object)},
                          {"created", setup.created},
                          {"model", setup.model->id},
                          {"system_fingerprint", json::string(system_fingerprint())}};
  std::string text = write_json(head);
  text.pop_back();
  return text + ",\"choices\":";
}

}  // namespace

OpenAiStream::OpenAiStream(AnswerSetup setup, std::string_view id_prefix, std::string_view object)
    : AnswerBase(std::move(setup)), head_(chunk_head(this->setup(), id_prefix, object)) {
  open_choices_ = number(this->setup().prompts.size(), 0);
  begun_.resize(open_choices_);
}

// `extra` members follow the choices.
void OpenAiStream::append(std::string_view choices, const json::object* extra, std::string& out) const {
  out += "data: ";
  out += head_;
  out += choices;
  if (extra != nullptr && !extra->empty()) {
    out += ',';
    out += std::string_view(write_json(*extra)).substr(1);
  } else {
    out += '}';
  }
  out += "\n\n";
}

void OpenAiStream::append_chunk(json::object choice, std::string& out) {
  json::object extra;
  if (parsed().continuous_usage) {
    extra["usage"] = usage_json({.prompt_tokens = setup().prompt_tokens(), .generated_tokens = generated_},
                                reasoning_tokens());
  } else if (parsed().include_usage) {
    extra["usage"] = nullptr;
  }
  append("[" + write_json(choice) + "]", &extra, out);
}

void OpenAiStream::begin(size_t index, int choice, std::string& out) {
  const size_t at = number(index, choice);
  if (begun_[at]) return;
  begun_[at] = true;
  begin_choice(index, choice, out);
}

void OpenAiStream::on_delta(size_t index, const AnswerDelta& delta, std::string& out) {
  begin(index, delta.raw.choice, out);
  if (!setup().prompt_alone()) generated_ += static_cast<int>(delta.raw.tokens.size());
  for (json::object& choice : chunks(index, delta)) append_chunk(std::move(choice), out);
}

void OpenAiStream::on_choice_end(size_t index, const engine::ChoiceEnd& end, std::string& out) {
  begin(index, end.choice, out);
  json::object choice = last_piece(index, end);
  if (--open_choices_ > 0) return append_chunk(std::move(choice), out);
  held_ = std::move(choice);
}

void OpenAiStream::on_complete(std::string& out) {
  json::object extra{{"timings", timings_json(usage(), timings())}};
  if (parsed().include_usage) {
    append_chunk(std::move(held_), out);
    extra["usage"] = with_compression(setup(), usage_json(usage(), reasoning_tokens()));
    append("[]", &extra, out);
  } else {
    if (parsed().continuous_usage)
      extra["usage"] = with_compression(setup(), usage_json(usage(), reasoning_tokens()));
    append("[" + write_json(held_) + "]", &extra, out);
  }
  out += "data: [DONE]\n\n";
}

void OpenAiStream::on_failure(const ApiError& error, std::string& out) {
  append_event(out, write_error(Dialect::OpenAi, error, setup().request_id));
  out += "data: [DONE]\n\n";
}

}  // namespace sluice::api
