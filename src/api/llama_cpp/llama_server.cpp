#include "api/llama_cpp/llama_server.h"

#include <fmt/format.h>

#include "api/core/answer_json.h"
#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/compress_fields.h"
#include "api/fields/sampling_fields.h"
#include "api/openai/completions.h"
#include "api/openai/models.h"
#include "api/prompt/compression.h"
#include "base/version.h"

namespace sluice::api {

namespace {

Status read_single_prompt(const json::value& value, ParsedRequest& parsed) {
  Status status = read_prompts(value, "prompt", parsed);
  if (status && parsed.prompts.size() > 1)
    return Error{ErrorCode::Unsupported, "'prompt' is a list of prompts; /v1/completions takes several"};
  return status;
}

constexpr Field kLlamaCompletion[] = {
    required(used("prompt", {}, "a string or a list of token ids", read_single_prompt)),
    used("n_probs", integer(0, request::SamplingLimits::kLogprobs),
         "log-probabilities of this many likeliest tokens",
         [](const json::value& value, ParsedRequest& parsed) -> Status {
           if (to_int(value) > 0) parsed.logprobs = to_int(value);
           return {};
         })
        .by_default("0"),
    used("return_tokens", {Kind::Boolean}, "give the token ids of the answer",
         into<&ParsedRequest::return_token_ids>),
    ignored("post_sampling_probs", "probabilities are the model's own"),
    ignored("response_fields", "all fields are given"),
};

std::string_view stop_type(const engine::ChoiceEnd& end) {
  if (end.reason == engine::FinishReason::Length) return "limit";
  return end.stop_string.empty() ? "eos" : "word";
}

json::array probabilities(const AnswerSetup& setup, const std::vector<request::Sampled>& tokens) {
  json::array out;
  for (const request::Sampled& token : tokens) {
    json::object entry = token_logprob(token, {*setup.model->tokenizer});
    entry["id"] = token.token;
    out.push_back(std::move(entry));
  }
  return out;
}

// The pieces of an answer, and its end.
json::object piece(const AnswerSetup& setup, const std::string& text,
                   const std::vector<request::Sampled>& tokens) {
  json::object out{{"index", 0},
                   {"content", text},
                   {"tokens", setup.parsed.return_token_ids ? ids_json(tokens) : json::array()},
                   {"id_slot", 0},
                   {"stop", false},
                   {"model", setup.model->id}};
  if (setup.wants_logprobs()) out["completion_probabilities"] = probabilities(setup, tokens);
  return out;
}

void add_llama_end(const engine::ChoiceEnd& end, const Totals& totals, json::object& out) {
  out["stop"] = true;
  out["tokens_predicted"] = totals.usage.generated_tokens;
  out["tokens_evaluated"] = totals.usage.prompt_tokens;
  out["tokens_cached"] = totals.usage.cached_tokens;
  out["truncated"] = false;
  out["stop_type"] = json::string(stop_type(end));
  out["stopping_word"] = end.stop_string;
  out["timings"] = timings_json(totals.usage, totals.timings);
}

class LlamaAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::string compose() const override {
    const Choice& choice = parts().front().choices.front();
    json::object out = piece(setup(), choice.text, choice.tokens);
    add_llama_end(choice.end, {usage(), timings()}, out);
    return write_json(with_compression(setup(), std::move(out)));
  }
};

class LlamaStream : public AnswerBase {
 public:
  using AnswerBase::AnswerBase;
  std::string_view content_type() const override { return "text/event-stream"; }
  std::string_view ping() const override { return ": ping\n\n"; }

 private:
  void on_delta(size_t, const AnswerDelta& delta, std::string& out) override {
    if (delta.raw.text.empty() && delta.raw.tokens.empty()) return;
    append_event(out, write_json(piece(setup(), delta.raw.text, delta.raw.tokens)));
  }
  void on_choice_end(size_t, const engine::ChoiceEnd& end, std::string&) override { end_ = end; }
  void on_complete(std::string& out) override {
    json::object last = piece(setup(), "", {});
    add_llama_end(end_, {usage(), timings()}, last);
    append_event(out, write_json(with_compression(setup(), std::move(last))));
  }
  void on_failure(const ApiError& error, std::string& out) override {
    append_event(out, write_error(Dialect::OpenAi, error, setup().request_id));
  }

  engine::ChoiceEnd end_;
};

}  // namespace

const RequestSchema& llama_completion_schema() {
  static const RequestSchema schema{"LlamaCompletionRequest",
                                    {kLlamaCompletion, model_field(), sampling_fields(), speculate_field(),
                                     compress_field(), envelope_fields()}};
  return schema;
}

Reply llama_completion(const Call& call) {
  ParsedRequest parsed;
  parsed.fallback = {.temperature = 0.8, .top_p = 0.95, .min_p = 0.05, .top_k = 40};
  if (Problem problem = read_body(call, llama_completion_schema(), parsed)) return *problem;
  if (parsed.n != 1) return unsupported_parameter("n", "'n' is not supported here; use /v1/completions");
  return generate(call, std::move(parsed), make_either<LlamaAnswer, LlamaStream>);
}

Reply llama_properties(const Call& call) {
  if (call.models.empty()) return model_not_found(call, "");
  const ServedModel& model = call.models.front();
  const tokenizer::TemplateSource* source = model.tokenizer->find_chat_template();
  const auto spelled = [&](std::optional<Token> token) {
    return token ? std::string(model.tokenizer->spelling(*token)) : std::string();
  };
  return Answer{.body = write_json(json::object{
                    {"default_generation_settings",
                     {{"n_ctx", model.context}, {"params", defaults_json(model.defaults, "repeat_penalty")}}},
                    {"total_slots", model.max_sequences},
                    {"model_alias", model.id},
                    {"model_path", model.id},
                    {"modalities", {{"vision", false}, {"audio", false}}},
                    {"chat_template", source == nullptr ? std::string() : source->source},
                    {"bos_token", spelled(model.tokenizer->special().bos)},
                    {"eos_token", spelled(model.tokenizer->special().eos)},
                    {"build_info", std::string(system_fingerprint())}})};
}

}  // namespace sluice::api
