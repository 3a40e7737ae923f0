#include "api/fields/parameters.h"

#include <fmt/format.h>

#include "api/fields/decoding_method.h"

namespace sluice::api {

namespace {

// A word is forbidden with and without a space before it.
Status add_bad_words(const ParsedRequest& parsed, const tokenizer::Tokenizer* tokenizer,
                     request::SamplingParams& out) {
  if (parsed.bad_words.empty()) return {};
  if (tokenizer == nullptr)
    return Error{ErrorCode::InvalidArgument, "'bad_words' needs a tokenizer, which this model does not have",
                 "bad_words"};
  for (const std::string& word : parsed.bad_words) {
    for (const std::string& form : {word, " " + word}) {
      Result<std::vector<Token>> tokens = tokenizer->encode(form);
      if (!tokens)
        return Error{tokens.error().code, fmt::format("'bad_words': {}", tokens.error().message),
                     "bad_words"};
      if (!tokens->empty()) out.bad_words.push_back(std::move(*tokens));
    }
  }
  return {};
}

}  // namespace

void fill_defaults(ParsedRequest& parsed, const request::SamplingDefaults& model) {
  const request::SamplingDefaults& defaults = request::recipe_or(model, parsed.fallback);
  const auto fill = [](auto& field, const auto& value) {
    if (!field) field = value;
  };
  fill(parsed.repetition_penalty, defaults.repetition_penalty);
  if (is_search(parsed)) return;
  fill(parsed.temperature, defaults.temperature);
  fill(parsed.top_p, defaults.top_p);
  fill(parsed.min_p, defaults.min_p);
  fill(parsed.top_k, defaults.top_k);
}

Result<Parameters> make_parameters(const ParsedRequest& parsed, const tokenizer::Tokenizer* tokenizer) {
  Parameters out;
  request::SamplingParams& s = out.sampling;
  Result<request::Method> method = make_method(parsed);
  if (!method) return method.error();
  s.method = *method;
  s.repetition_penalty = parsed.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = parsed.presence_penalty;
  s.frequency_penalty = parsed.frequency_penalty;
  s.logit_bias = parsed.logit_bias;
  if (Status words = add_bad_words(parsed, tokenizer, s); !words) return words.error();
  s.allowed_tokens = parsed.allowed_tokens;
  s.constraint = parsed.constraint;
  s.stop_tokens = parsed.stop_tokens;
  s.ignore_eos = parsed.ignore_eos;
  s.min_tokens = parsed.min_tokens;
  s.n = parsed.n;
  s.speculate = parsed.speculate;
  out.has_max_tokens = parsed.max_tokens.value_or(-1) >= 0;
  if (out.has_max_tokens) s.max_tokens = *parsed.max_tokens;
  s.logprobs = parsed.logprobs;
  if (parsed.logprobs_wanted) s.logprobs = parsed.top_logprobs.value_or(0);
  s.prompt_logprobs = parsed.prompt_logprobs;
  out.text = {
      .stop = parsed.stop, .include_stop = parsed.include_stop, .skip_special = parsed.skip_special_tokens};
  out.priority = -parsed.priority;
  out.cache_salt = parsed.cache_salt;
  return out;
}

}  // namespace sluice::api
