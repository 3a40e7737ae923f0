#include "api/core/parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::api {

namespace {

// A word is forbidden with and without a space before it.
Status add_bad_words(const Draft& draft, const tokenizer::Tokenizer* tokenizer,
                     request::SamplingParams& out) {
  if (draft.bad_words.empty()) return {};
  if (tokenizer == nullptr)
    return Error{ErrorCode::InvalidArgument, "'bad_words' needs a tokenizer, which this model does not have"};
  for (const std::string& word : draft.bad_words) {
    for (const std::string& form : {word, " " + word}) {
      Result<std::vector<Token>> tokens = tokenizer->encode(form);
      if (!tokens) return Error{tokens.error().code, fmt::format("'bad_words': {}", tokens.error().message)};
      if (!tokens->empty()) out.bad_words.push_back(std::move(*tokens));
    }
  }
  return {};
}

request::Sampling make_sampling(const Draft& draft) {
  request::Sampling out;
  out.temperature = draft.temperature.value_or(out.temperature);
  out.top_k = draft.top_k.value_or(out.top_k);
  out.top_p = draft.top_p.value_or(out.top_p);
  out.min_p = draft.min_p.value_or(out.min_p);
  out.typical_p = draft.typical_p.value_or(out.typical_p);
  out.best_of = draft.best_of.value_or(out.best_of);
  out.seed = draft.seed;
  return out;
}

// Beam search by use_beam_search; contrastive search by penalty_alpha, as in transformers; contrastive decoding by an
// object {alpha, beta}.
request::Method make_method(const Draft& draft) {
  if (draft.use_beam_search) {
    request::BeamSearch beam{.width = draft.best_of.value_or(draft.n),
                             .early_stopping = draft.early_stopping};
    beam.width = draft.beam_width.value_or(std::max(1, beam.width));
    beam.length_penalty = draft.length_penalty.value_or(beam.length_penalty);
    return beam;
  }
  if (draft.penalty_alpha.value_or(0) > 0)
    return request::ContrastiveSearch{.top_k = draft.top_k.value_or(4), .alpha = *draft.penalty_alpha};
  if (!draft.contrastive_decoding) return make_sampling(draft);
  request::ContrastiveDecoding method{.sampling = make_sampling(draft)};
  method.alpha = draft.contrastive_decoding->alpha.value_or(method.alpha);
  method.beta = draft.contrastive_decoding->beta.value_or(method.beta);
  return method;
}

}  // namespace

void fill_defaults(Draft& draft, const request::SamplingDefaults& model) {
  const request::SamplingDefaults& defaults = request::recipe_or(model, draft.fallback);
  const auto fill = [](auto& field, const auto& value) {
    if (!field) field = value;
  };
  fill(draft.temperature, defaults.temperature);
  fill(draft.top_p, defaults.top_p);
  fill(draft.min_p, defaults.min_p);
  fill(draft.repetition_penalty, defaults.repetition_penalty);
  // The candidates of a contrastive search are not a filter.
  if (draft.penalty_alpha.value_or(0) == 0) fill(draft.top_k, defaults.top_k);
}

Result<Parameters> make_parameters(const Draft& draft, const tokenizer::Tokenizer* tokenizer) {
  Parameters out;
  request::SamplingParams& s = out.sampling;
  s.method = make_method(draft);
  s.repetition_penalty = draft.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = draft.presence_penalty;
  s.frequency_penalty = draft.frequency_penalty;
  s.logit_bias = draft.logit_bias;
  if (Status words = add_bad_words(draft, tokenizer, s); !words) return words.error();
  s.allowed_tokens = draft.allowed_tokens;
  s.stop_tokens = draft.stop_tokens;
  s.ignore_eos = draft.ignore_eos;
  s.min_tokens = draft.min_tokens;
  s.n = draft.n;
  out.has_max_tokens = draft.max_tokens.value_or(-1) >= 0;
  if (out.has_max_tokens) s.max_tokens = *draft.max_tokens;
  s.logprobs = draft.logprobs;
  if (draft.logprobs_wanted) s.logprobs = draft.top_logprobs.value_or(0);
  s.prompt_logprobs = draft.prompt_logprobs;
  out.text = {
      .stop = draft.stop, .include_stop = draft.include_stop, .skip_special = draft.skip_special_tokens};
  out.priority = -draft.priority;
  out.cache_salt = draft.cache_salt;
  return out;
}

}  // namespace sluice::api
