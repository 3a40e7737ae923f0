#include "request/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace sluice::request {
namespace {

using Limits = SamplingLimits;

// The first failure of a list of checks.
class Checker {
 public:
  explicit Checker(int vocab) : vocab_(vocab) {}

  void number(std::string_view field, double value, double low, double high) {
    if (!status_.ok()) return;
    if (!std::isfinite(value)) {
      fail(field, fmt::format("{} is {}; it must be a finite number from {} to {}", field, value, low, high));
    } else if (value < low || value > high) {
      fail(field, fmt::format("{} is {:g}; it must be from {} to {}", field, value, low, high));
    }
  }

  void integer(std::string_view field, int64_t value, int64_t low, int64_t high) {
    if (status_.ok() && (value < low || value > high)) {
      fail(field, fmt::format("{} is {}; it must be from {} to {}", field, value, low, high));
    }
  }

  void positive(std::string_view field, double value) {
    if (status_.ok() && !(value > 0))
      fail(field, fmt::format("{} is {:g}; it must be greater than 0", field, value));
  }

  void count(std::string_view field, size_t size, size_t limit, std::string_view of = "entries") {
    if (status_.ok() && size > limit)
      fail(field, fmt::format("{} has {} {}; the limit is {}", field, size, of, limit));
  }

  void token(std::string_view field, Token token) {
    if (status_.ok() && (token < 0 || token >= vocab_)) {
      fail(field, fmt::format("{} holds token {}; the vocabulary ends at {}", field, token, vocab_ - 1));
    }
  }

  void require(bool holds, std::string_view field, std::string message) {
    if (status_.ok() && !holds) fail(field, std::move(message));
  }

  Status status() const { return status_; }

 private:
  void fail(std::string_view field, std::string message) {
    status_ = Status(Error{ErrorCode::InvalidArgument, std::move(message), std::string(field)});
  }

  int vocab_;
  Status status_;
};

void check_lists(Checker& check, const SamplingParams& params, int vocab) {
  check.count("logit_bias", params.logit_bias.size(), Limits::kBiases);
  check.count("bad_words", params.bad_words.size(), Limits::kBadWords);
  check.count("stop_token_ids", params.stop_tokens.size(), Limits::kStopTokens);
  if (!check.status().ok()) return;
  for (const LogitBias& entry : params.logit_bias) {
    check.token("logit_bias", entry.token);
    check.number("logit_bias", entry.bias, -Limits::kBias, Limits::kBias);
  }
  size_t bad_word_tokens = 0;
  for (const std::vector<Token>& word : params.bad_words) {
    bad_word_tokens += word.size();
    check.require(!word.empty(), "bad_words",
                  "bad_words holds an empty entry; each must have at least 1 token");
  }
  check.count("bad_words", bad_word_tokens, Limits::kBadWordTokens, "tokens in all entries");
  if (!check.status().ok()) return;
  for (const std::vector<Token>& word : params.bad_words) {
    for (Token token : word) check.token("bad_words", token);
  }
  for (Token token : params.stop_tokens) check.token("stop_token_ids", token);
  if (params.allowed_tokens) {
    check.require(!params.allowed_tokens->empty(), "allowed_token_ids",
                  "allowed_token_ids is empty; at least 1 token must be allowed");
    check.count("allowed_token_ids", params.allowed_tokens->size(), static_cast<size_t>(vocab));
    if (!check.status().ok()) return;
    for (Token token : *params.allowed_tokens) check.token("allowed_token_ids", token);
  }
}

void check_sampling(Checker& check, const Sampling& sampling, int n) {
  check.number("temperature", sampling.temperature, 0, Limits::kTemperature);
  check.require(sampling.top_k >= -1, "top_k",
                fmt::format("top_k is {}; it must be at least 1, or 0 or -1 for all tokens", sampling.top_k));
  check.number("top_p", sampling.top_p, 0, 1);
  check.number("min_p", sampling.min_p, 0, 1);
  check.number("typical_p", sampling.typical_p, 0, 1);
  check.positive("typical_p", sampling.typical_p);
  check.integer("best_of", sampling.best_of, 0, Limits::kSequences);
  check.require(sampling.best_of == 0 || sampling.best_of >= n, "best_of",
                fmt::format("best_of is {}; it must be at least n, which is {}", sampling.best_of, n));
}

struct MethodCheck {
  Checker& check;
  int n;

  void operator()(const Sampling& sampling) const { check_sampling(check, sampling, n); }
  void operator()(const BeamSearch& beam) const {
    check.integer("beam_width", beam.width, 1, Limits::kSequences);
    check.number("length_penalty", beam.length_penalty, -Limits::kLengthPenalty, Limits::kLengthPenalty);
    check.require(n <= beam.width, "n",
                  fmt::format("n is {}; beam search of width {} has no more results", n, beam.width));
  }
  void operator()(const ContrastiveSearch& search) const {
    check.integer("top_k", search.top_k, 1, Limits::kSequences);
    check.number("penalty_alpha", search.alpha, 0, 1);
    check.require(n == 1, "n", fmt::format("n is {}; contrastive search has 1 result", n));
  }
  void operator()(const ContrastiveDecoding& decoding) const {
    check.number("contrastive_decoding.alpha", decoding.alpha, 0, 1);
    check.positive("contrastive_decoding.alpha", decoding.alpha);
    check.number("contrastive_decoding.beta", decoding.beta, 0, Limits::kBeta);
    check_sampling(check, decoding.sampling, n);
  }
};

}  // namespace

bool SamplingDefaults::empty() const {
  return *this == SamplingDefaults{};
}

SamplingDefaults first_of(const SamplingDefaults& first, const SamplingDefaults& second) {
  const auto either = [](const auto& one, const auto& other) { return one ? one : other; };
  return {.temperature = either(first.temperature, second.temperature),
          .top_p = either(first.top_p, second.top_p),
          .min_p = either(first.min_p, second.min_p),
          .repetition_penalty = either(first.repetition_penalty, second.repetition_penalty),
          .top_k = either(first.top_k, second.top_k)};
}

const SamplingDefaults& recipe_or(const SamplingDefaults& recipe, const SamplingDefaults& fallback) {
  return recipe.empty() ? fallback : recipe;
}

Status validate(const SamplingDefaults& defaults) {
  SamplingParams params;
  Sampling sampling;
  sampling.temperature = defaults.temperature.value_or(sampling.temperature);
  sampling.top_p = defaults.top_p.value_or(sampling.top_p);
  sampling.min_p = defaults.min_p.value_or(sampling.min_p);
  sampling.top_k = defaults.top_k.value_or(sampling.top_k);
  params.method = sampling;
  params.repetition_penalty = defaults.repetition_penalty.value_or(params.repetition_penalty);
  return validate(params, 1);
}

Status validate(const SamplingParams& params, int vocab) {
  Checker check(vocab);
  check.number("repetition_penalty", params.repetition_penalty, Limits::kRepetitionPenaltyLow,
               Limits::kRepetitionPenaltyHigh);
  check.number("presence_penalty", params.presence_penalty, -Limits::kPenalty, Limits::kPenalty);
  check.number("frequency_penalty", params.frequency_penalty, -Limits::kPenalty, Limits::kPenalty);
  check.integer("n", params.n, 1, Limits::kSequences);
  check.integer("max_tokens", params.max_tokens, 1, Limits::kMaxTokens);
  check.integer("min_tokens", params.min_tokens, 0, Limits::kMaxTokens);
  check.require(params.min_tokens <= params.max_tokens, "min_tokens",
                fmt::format("min_tokens is {}; it must not be over max_tokens, which is {}",
                            params.min_tokens, params.max_tokens));
  if (params.logprobs) check.integer("logprobs", *params.logprobs, 0, Limits::kLogprobs);
  if (params.prompt_logprobs) check.integer("prompt_logprobs", *params.prompt_logprobs, 0, Limits::kLogprobs);
  check.integer("prompt_logprobs_from", params.prompt_logprobs_from, 0, Limits::kMaxTokens);
  check_lists(check, params, vocab);
  std::visit(MethodCheck{check, params.n}, params.method);
  const bool guesses = params.speculate.value_or(Speculation::Off) != Speculation::Off;
  check.require(!guesses || std::holds_alternative<Sampling>(params.method), "speculate",
                fmt::format("speculate is {}; searches and contrastive decoding run without drafts",
                            name(params.speculate.value_or(Speculation::Off))));
  const bool alone = std::holds_alternative<Sampling>(params.method) && sequence_count(params) == 1;
  check.require(!params.prompt_attention || (alone && params.speculate == Speculation::Off),
                "prompt_attention",
                "prompt_attention is asked for; it is read of one sequence that samples without drafts");
  return check.status();
}

int sequence_count(const SamplingParams& params) {
  if (const auto* beam = std::get_if<BeamSearch>(&params.method)) return beam->width;
  if (const auto* search = std::get_if<ContrastiveSearch>(&params.method)) return search->top_k;
  const Sampling* sampling = sampling_of(params);
  return sampling == nullptr ? 1 : std::max(params.n, sampling->best_of);
}

bool needs_host_sampling(const SamplingParams& params) {
  const auto* sampling = std::get_if<Sampling>(&params.method);
  return sampling == nullptr || sampling->typical_p < 1 || params.prompt_attention ||
         std::any_of(params.bad_words.begin(), params.bad_words.end(),
                     [](const std::vector<Token>& word) { return word.size() != 1; });
}

const Sampling* sampling_of(const SamplingParams& params) {
  if (const auto* sampling = std::get_if<Sampling>(&params.method)) return sampling;
  if (const auto* decoding = std::get_if<ContrastiveDecoding>(&params.method)) return &decoding->sampling;
  return nullptr;
}

}  // namespace sluice::request
