#include "api/parameters.h"

#include <fmt/format.h>

#include <charconv>

#include "api/fields.h"

namespace sluice::api {

namespace {

void read_logit_bias(Fields& fields, sched::SamplingParams& out) {
  const json::value* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.fail("'logit_bias' must be an object of token ids and numbers");
  for (const auto& [key, bias] : value->get_object()) {
    Token token = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (problem != std::errc() || end != key.data() + key.size() || !bias.is_number())
      return fields.fail(fmt::format("'logit_bias' has '{}', must be token ids with numbers",
                                     std::string_view(key.data(), key.size())));
    out.logit_bias.push_back({token, bias.to_number<double>()});
  }
}

// A word is forbidden with and without a space before it.
void read_bad_words(Fields& fields, const text::Tokenizer* tokenizer, sched::SamplingParams& out) {
  const auto words = fields.texts("bad_words");
  if (!words || words->empty()) return;
  if (tokenizer == nullptr)
    return fields.fail("'bad_words' needs a tokenizer, which this model does not have");
  for (const std::string& word : *words) {
    if (word.empty()) return fields.fail("'bad_words' holds an empty string");
    for (const std::string& form : {word, " " + word}) {
      Result<std::vector<Token>> tokens = tokenizer->encode(form);
      if (!tokens) return fields.fail(fmt::format("'bad_words': {}", tokens.error().message));
      if (!tokens->empty()) out.bad_words.push_back(std::move(*tokens));
    }
  }
}

// "logprobs" is a count in completions and a switch, with "top_logprobs" beside it, in chats.
void read_logprobs(Fields& fields, sched::SamplingParams& out) {
  const json::value* value = fields.find("logprobs");
  if (value != nullptr && value->is_bool()) {
    if (value->get_bool()) out.logprobs = fields.integer("top_logprobs").value_or(0);
  } else if (const auto count = fields.integer("logprobs")) {
    out.logprobs = *count;
  }
  if (const auto count = fields.integer("prompt_logprobs")) out.prompt_logprobs = *count;
}

sched::Sampling read_sampling(Fields& fields) {
  sched::Sampling sampling;
  Fields::set(sampling.temperature, fields.number("temperature"));
  Fields::set(sampling.top_k, fields.integer("top_k"));
  Fields::set(sampling.top_p, fields.number("top_p"));
  Fields::set(sampling.min_p, fields.number("min_p"));
  Fields::set(sampling.typical_p, fields.number("typical_p"));
  Fields::set(sampling.best_of, fields.integer("best_of"));
  sampling.seed = fields.seed("seed");
  return sampling;
}

sched::BeamSearch read_beam(Fields& fields, int n) {
  sched::BeamSearch beam{.width = std::max(1, n)};
  Fields::set(beam.width, fields.integer("best_of"));
  Fields::set(beam.width, fields.integer("beam_width"));
  Fields::set(beam.length_penalty, fields.number("length_penalty"));
  const json::value* early = fields.find("early_stopping");
  if (early == nullptr) return beam;
  if (early->is_bool()) {
    beam.early_stopping = early->get_bool() ? sched::EarlyStopping::AtWidth : sched::EarlyStopping::Heuristic;
  } else if (early->is_string() && early->get_string() == "never") {
    beam.early_stopping = sched::EarlyStopping::Never;
  } else {
    fields.fail("'early_stopping' must be true, false or \"never\"");
  }
  return beam;
}

// Beam search by use_beam_search; contrastive search by penalty_alpha, as in transformers; contrastive decoding by an
// object {alpha, beta}.
sched::Method read_method(Fields& fields, int n) {
  if (fields.flag("use_beam_search").value_or(false)) return read_beam(fields, n);
  if (const auto alpha = fields.number("penalty_alpha"); alpha && *alpha > 0)
    return sched::ContrastiveSearch{.top_k = fields.integer("top_k").value_or(4), .alpha = *alpha};
  const json::value* contrast = fields.find("contrastive_decoding");
  if (contrast == nullptr) return read_sampling(fields);
  if (!contrast->is_object()) {
    fields.fail("'contrastive_decoding' must be an object with 'alpha' and 'beta'");
    return read_sampling(fields);
  }
  Fields inner(contrast->get_object());
  sched::ContrastiveDecoding method{.sampling = read_sampling(fields)};
  Fields::set(method.alpha, inner.number("alpha"));
  Fields::set(method.beta, inner.number("beta"));
  if (!inner.status()) fields.fail("'contrastive_decoding': " + inner.status().error().message);
  return method;
}

}  // namespace

Result<Parameters> read_parameters(const json::object& body, const text::Tokenizer* tokenizer) {
  Fields fields(body);
  Parameters out;
  sched::SamplingParams& s = out.sampling;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (const auto count = fields.integer(name)) {
      s.max_tokens = *count;
      out.has_max_tokens = true;
    }
  }
  Fields::set(s.n, fields.integer("n"));
  s.method = read_method(fields, s.n);
  Fields::set(s.min_tokens, fields.integer("min_tokens"));
  Fields::set(s.repetition_penalty, fields.number("repetition_penalty"));
  Fields::set(s.presence_penalty, fields.number("presence_penalty"));
  Fields::set(s.frequency_penalty, fields.number("frequency_penalty"));
  Fields::set(s.ignore_eos, fields.flag("ignore_eos"));
  Fields::set(s.stop_tokens, fields.tokens("stop_token_ids"));
  if (auto allowed = fields.tokens("allowed_token_ids")) s.allowed_tokens = std::move(*allowed);
  read_logit_bias(fields, s);
  read_bad_words(fields, tokenizer, s);
  read_logprobs(fields, s);
  Fields::set(out.text.stop, fields.texts("stop"));
  Fields::set(out.text.include_stop, fields.flag("include_stop_str_in_output"));
  Fields::set(out.text.skip_special, fields.flag("skip_special_tokens"));
  Fields::set(out.priority, fields.integer("priority"));
  Fields::set(out.cache_salt, fields.text("cache_salt"));
  if (out.cache_salt.size() > 256)
    fields.fail(fmt::format("'cache_salt' has {} bytes, limit 256", out.cache_salt.size()));
  if (!fields.status()) return fields.status().error();
  return out;
}

}  // namespace sluice::api
