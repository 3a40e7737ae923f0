#include "llm/sampling_flags.h"

#include <algorithm>

#include "base/system/file.h"

namespace sluice::llm {

namespace {

using Limits = request::SamplingLimits;

}  // namespace

void declare_defaults(OptionSet& options, request::SamplingDefaults& defaults) {
  options.add(defaults.temperature, "temperature", "0: always the likeliest token; default: the model's")
      .also("temp")
      .within(0, Limits::kTemperature);
  options.add(defaults.top_k, "top-k", "sample from the k likeliest tokens; 0: all; default: the model's")
      .within(0, 1 << 24);
  options.add(defaults.top_p, "top-p", "sample from the likeliest tokens of this mass; default: the model's")
      .within(0.0, 1);
  options
      .add(defaults.min_p, "min-p",
           "leave out tokens below this share of the likeliest; default: the model's")
      .within(0, 1);
  options
      .add(defaults.repetition_penalty, "repeat-penalty",
           "over 1: tokens seen before become less likely; default: the model's")
      .within(Limits::kRepetitionPenaltyLow, Limits::kRepetitionPenaltyHigh);
}

void SamplingFlags::declare(OptionSet& options) {
  options.add(max_tokens, "max-tokens", "longest answer in tokens, at least 1; -1: until it ends by itself")
      .short_name('n')
      .within(-1, 1 << 24);
  declare_defaults(options, chosen);
  options.add(seed, "seed", "the same seed gives the same answer; -1: a new one each time")
      .short_name('s')
      .within(-1, 0x1p53);
  options.add(stop, "stop", "end the answer before this text; may be given several times");
  options.add(ignore_eos, "ignore-eos", "go on when the model would end");
  options.add(json_schema, "json-schema", "the answer is JSON that fits the schema in this file")
      .shown_as("FILE");
  options.add(grammar, "grammar", "the answer follows the grammar in this file: EBNF, GBNF, or Lark")
      .shown_as("FILE");
}

void SamplingFlags::settle(const request::SamplingDefaults& model) {
  chosen = request::first_of(chosen, request::recipe_or(model, kFallback));
}

Result<std::optional<request::Constraint>> SamplingFlags::constraint() const {
  if (json_schema.empty() && grammar.empty()) return std::optional<request::Constraint>();
  if (!json_schema.empty() && !grammar.empty())
    return Error{ErrorCode::InvalidArgument,
                 "--json-schema and --grammar are both given; one may say what the answer is"};
  Result<std::string> text = read_regular_file(json_schema.empty() ? grammar : json_schema, size_t{1} << 20);
  if (!text) return text.error();
  request::Constraint wanted;
  if (grammar.empty()) {
    wanted.body = request::JsonSchema{.schema = std::move(*text)};
  } else {
    wanted.body = request::context_free(std::move(*text));
  }
  return std::optional<request::Constraint>(std::move(wanted));
}

request::SamplingParams SamplingFlags::params(int room) const {
  request::SamplingParams out;
  request::Sampling sampling;
  sampling.temperature = chosen.temperature.value_or(sampling.temperature);
  sampling.top_k = chosen.top_k.value_or(sampling.top_k);
  sampling.top_p = chosen.top_p.value_or(sampling.top_p);
  sampling.min_p = chosen.min_p.value_or(sampling.min_p);
  if (seed >= 0) sampling.seed = static_cast<uint64_t>(seed);
  out.method = sampling;
  out.repetition_penalty = chosen.repetition_penalty.value_or(out.repetition_penalty);
  out.ignore_eos = ignore_eos;
  out.max_tokens = max_tokens < 0 ? room : std::min(max_tokens, room);
  return out;
}

}  // namespace sluice::llm
