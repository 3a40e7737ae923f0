#include "api/fields/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <initializer_list>

#include "api/core/errors.h"

namespace sluice::api {

namespace {

using Limits = request::SamplingLimits;

Status read_logit_bias(const json::value& value, ParsedRequest& parsed) {
  if (value.get_object().size() > Limits::kBiases)
    return wrong(fmt::format("'logit_bias' has {} entries; the limit is {}", value.get_object().size(),
                             Limits::kBiases));
  for (const auto& [key, bias] : value.get_object()) {
    Token token = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (problem != std::errc() || end != key.data() + key.size() || !bias.is_number())
      return wrong(fmt::format("'logit_bias' has '{}'; it must hold token ids with numbers",
                               clipped({key.data(), key.size()})));
    parsed.logit_bias.push_back({token, to_double(bias)});
  }
  return {};
}

Status read_bad_words(const json::value& value, ParsedRequest& parsed) {
  constexpr size_t kMost = Limits::kBadWords / 2, kBytes = 1024;  // each has two forms
  parsed.bad_words = to_texts(value);
  if (parsed.bad_words.size() > kMost)
    return wrong(fmt::format("'bad_words' has {} entries; the limit is {}", parsed.bad_words.size(), kMost));
  for (const std::string& word : parsed.bad_words) {
    if (word.empty()) return wrong("'bad_words' holds an empty string");
    if (word.size() > kBytes)
      return wrong(
          fmt::format("'bad_words' holds a string of {} bytes; the limit is {}", word.size(), kBytes));
  }
  return {};
}

Status read_early_stopping(const json::value& value, ParsedRequest& parsed) {
  using enum request::EarlyStopping;
  if (value.is_bool()) {
    parsed.early_stopping = value.get_bool() ? AtWidth : Heuristic;
  } else if (value.is_string() && value.get_string() == "never") {
    parsed.early_stopping = Never;
  } else {
    return wrong(fmt::format("'early_stopping' is {}; it must be true, false or \"never\"", shown(value)));
  }
  return {};
}

ContrastWeights& contrast(ParsedRequest& parsed) {
  if (!parsed.contrastive_decoding) parsed.contrastive_decoding.emplace();
  return *parsed.contrastive_decoding;
}
Status read_contrast(const json::value&, ParsedRequest& parsed) {
  contrast(parsed);
  return {};
}
Status read_contrast_alpha(const json::value& value, ParsedRequest& parsed) {
  contrast(parsed).alpha = to_double(value);
  return {};
}
Status read_contrast_beta(const json::value& value, ParsedRequest& parsed) {
  contrast(parsed).beta = to_double(value);
  return {};
}

Status read_cache_salt(const json::value& value, ParsedRequest& parsed) {
  parsed.cache_salt = to_text(value);
  const bool printable = std::all_of(parsed.cache_salt.begin(), parsed.cache_salt.end(),
                                     [](char c) { return c > 0x20 && c < 0x7F; });
  if (parsed.cache_salt.empty() || parsed.cache_salt.size() > 256 || !printable)
    return wrong(fmt::format("'cache_salt' has {} bytes; it must be 1 to 256 printable ASCII characters",
                             parsed.cache_salt.size()));
  return {};
}

Status read_speculate(const json::value& value, ParsedRequest& parsed) {
  parsed.speculate = request::speculation_named(to_text(value));
  if (parsed.speculate) return {};
  return wrong(fmt::format("'speculate' is {}; it must be {}", shown(value), request::speculation_names()));
}

constexpr Field kContrastFields[] = {
    used("alpha", number(0, 1), "share of the likeliest token's probability that a candidate must have",
         read_contrast_alpha)
        .by_default("0.1"),
    used("beta", number(0, Limits::kBeta), "weight of the second model", read_contrast_beta)
        .by_default("0.5"),
};

constexpr Field nested_contrast() {
  Field field =
      nested("contrastive_decoding", "contrastive decoding against the second model", kContrastFields);
  field.read = read_contrast;
  return field;
}

constexpr Field kSampling[] = {
    used("temperature", number(0, Limits::kTemperature), "0: always the likeliest token",
         into<&ParsedRequest::temperature>)
        .by_default("the model's"),
    used("top_p", number(0, 1), "keep the smallest set of tokens of at least this mass",
         into<&ParsedRequest::top_p>)
        .by_default("the model's"),
    used("top_k", integer(-1), "keep the k likeliest tokens; 0 or -1: all", into<&ParsedRequest::top_k>)
        .by_default("the model's"),
    used("min_p", number(0, 1), "keep tokens of at least this share of the likeliest's probability",
         into<&ParsedRequest::min_p>)
        .by_default("the model's"),
    used("typical_p", number(1e-6, 1), "keep the tokens nearest to the entropy, of at least this mass",
         into<&ParsedRequest::typical_p>)
        .by_default("1"),
    used("seed", {Kind::Seed}, "the same seed gives the same answer", into<&ParsedRequest::seed>)
        .by_default("a new one each time"),
    used("n", integer(1, Limits::kSequences), "choices per prompt", into<&ParsedRequest::n>).by_default("1"),
    used("presence_penalty", number(-Limits::kPenalty, Limits::kPenalty),
         "subtracted from every token that was generated", into<&ParsedRequest::presence_penalty>)
        .by_default("0"),
    used("frequency_penalty", number(-Limits::kPenalty, Limits::kPenalty),
         "subtracted once per time a token was generated", into<&ParsedRequest::frequency_penalty>)
        .by_default("0"),
    used("repetition_penalty", number(Limits::kRepetitionPenaltyLow, Limits::kRepetitionPenaltyHigh),
         "of every token in prompt or answer", into<&ParsedRequest::repetition_penalty>)
        .by_default("the model's"),
    used("repeat_penalty", number(Limits::kRepetitionPenaltyLow, Limits::kRepetitionPenaltyHigh),
         "another name of repetition_penalty", into<&ParsedRequest::repetition_penalty>)
        .by_default("the model's"),
    used("logit_bias", {Kind::Object},
         "token ids with numbers from -100 to 100 that are added to their logits", read_logit_bias),
    used("bad_words", {Kind::Texts}, "texts that are never generated, at most 64", read_bad_words),
    used("allowed_token_ids", {Kind::Tokens}, "nothing else is generated",
         into<&ParsedRequest::allowed_tokens>)
        .by_default("all"),
    used("stop", {Kind::Texts}, "at most 16 strings that end the answer", into<&ParsedRequest::stop>),
    used("stop_token_ids", {Kind::Tokens}, "tokens that end the answer", into<&ParsedRequest::stop_tokens>),
    used("include_stop_str_in_output", {Kind::Boolean}, "the answer keeps the stop string it met",
         into<&ParsedRequest::include_stop>),
    used("ignore_eos", {Kind::Boolean}, "the model's end tokens do not end the answer",
         into<&ParsedRequest::ignore_eos>),
    used("min_tokens", integer(0, Limits::kMaxTokens), "end tokens are forbidden before this many",
         into<&ParsedRequest::min_tokens>)
        .by_default("0"),
    used("max_tokens", integer(0, Limits::kMaxTokens), "most tokens of an answer",
         into<&ParsedRequest::max_tokens>)
        .by_default("what fits; 16 in /v1/completions"),
    used("max_completion_tokens", integer(0, Limits::kMaxTokens), "the same, newer name",
         into<&ParsedRequest::max_tokens>)
        .by_default("as max_tokens"),
    used("n_predict", integer(-1, Limits::kMaxTokens), "the same, llama.cpp's name; -1: what fits",
         into<&ParsedRequest::max_tokens>)
        .by_default("as max_tokens"),
    used("skip_special_tokens", {Kind::Boolean}, "leave control tokens out of the text",
         into<&ParsedRequest::skip_special_tokens>)
        .by_default("true"),
    used("prompt_logprobs", integer(0, Limits::kLogprobs),
         "log-probabilities of the prompt's tokens, and of this many likeliest",
         into<&ParsedRequest::prompt_logprobs>),
    used("best_of", integer(0, Limits::kSequences), "sequences drawn, of which the n likeliest are returned",
         into<&ParsedRequest::best_of>)
        .by_default("n"),
    used("use_beam_search", {Kind::Boolean}, "search with beams instead of drawing",
         into<&ParsedRequest::use_beam_search>),
    used("beam_width", integer(1, Limits::kSequences), "beams", into<&ParsedRequest::beam_width>)
        .by_default("best_of or n"),
    used("length_penalty", number(-Limits::kLengthPenalty, Limits::kLengthPenalty),
         "exponent of the length by which a beam's score is divided", into<&ParsedRequest::length_penalty>)
        .by_default("1"),
    used("early_stopping", {}, "when a beam search ends: true, false or \"never\"", read_early_stopping)
        .by_default("false"),
    used("penalty_alpha", number(0, 1), "contrastive search with this weight, over top_k candidates",
         into<&ParsedRequest::penalty_alpha>),
    nested_contrast(),
    used("priority", integer(-1000000, 1000000), "lower goes first", into<&ParsedRequest::priority>)
        .by_default("0"),
    used("cache_salt", {Kind::Text}, "only requests of the same salt share cached prefixes", read_cache_salt),
};

Status read_logprobs_either(const json::value& value, ParsedRequest& parsed) {
  if (value.is_bool()) {
    parsed.logprobs_wanted = value.get_bool();
  } else if (value.is_int64() && value.get_int64() >= 0 && value.get_int64() <= Limits::kLogprobs) {
    parsed.logprobs = to_int(value);
  } else {
    return wrong(fmt::format("'logprobs' is {}; it must be true, false or from 0 to {}", shown(value),
                             Limits::kLogprobs));
  }
  return {};
}

constexpr Field kTopLogprobs =
    used("top_logprobs", integer(0, Limits::kLogprobs), "how many likeliest tokens are given with each",
         into<&ParsedRequest::top_logprobs>)
        .by_default("0");
constexpr Field kCountLogprobs[] = {
    used("logprobs", integer(0, Limits::kLogprobs),
         "log-probabilities of the tokens, and of this many likeliest", into<&ParsedRequest::logprobs>),
};
constexpr Field kSwitchLogprobs[] = {
    used("logprobs", {Kind::Boolean}, "give the log-probabilities of the tokens",
         into<&ParsedRequest::logprobs_wanted>),
    kTopLogprobs,
};
constexpr Field kJobLogprobs[] = {
    used("logprobs", {}, "true, or how many likeliest tokens are given with each", read_logprobs_either),
    kTopLogprobs,
};

constexpr Field kModel[] = {
    used("model", {Kind::Text}, "a name from GET /v1/models", into<&ParsedRequest::model>)
        .by_default("the first model"),
};

constexpr Field kSpeculate[] = {
    used("speculate", {Kind::Text},
         "who guesses the next tokens, of which several are verified at once: off, auto or a proposer of "
         "docs/speculation.md; the answer is the same",
         read_speculate)
        .by_default("the server's"),
};

}  // namespace

std::span<const Field> model_field() {
  return kModel;
}
std::span<const Field> speculate_field() {
  return kSpeculate;
}
std::span<const Field> sampling_fields() {
  return kSampling;
}
std::span<const Field> count_logprobs_fields() {
  return kCountLogprobs;
}
std::span<const Field> switch_logprobs_fields() {
  return kSwitchLogprobs;
}
std::span<const Field> job_logprobs_fields() {
  return kJobLogprobs;
}

}  // namespace sluice::api
