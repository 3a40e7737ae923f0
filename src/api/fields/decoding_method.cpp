#include "api/fields/decoding_method.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::api {

namespace {

enum class MethodKind : uint8_t { Sampling, BeamSearch, ContrastiveSearch, ContrastiveDecoding };
using enum MethodKind;

std::string_view name(MethodKind kind) {
  switch (kind) {
    case BeamSearch:
      return "beam search ('use_beam_search')";
    case ContrastiveSearch:
      return "contrastive search ('penalty_alpha')";
    case ContrastiveDecoding:
      return "contrastive decoding ('contrastive_decoding')";
    case Sampling:
      break;
  }
  return "sampling (without 'use_beam_search')";
}

MethodKind kind_of(const ParsedRequest& parsed) {
  if (parsed.use_beam_search) return BeamSearch;
  if (parsed.penalty_alpha.value_or(0) > 0) return ContrastiveSearch;
  return parsed.contrastive_decoding ? ContrastiveDecoding : Sampling;
}

// What a request says in a field, as errors show it; empty where that asks for nothing.
template <auto Member>
std::string unless_one_of(const ParsedRequest& parsed, std::initializer_list<double> neutral) {
  const auto& value = parsed.*Member;
  const bool asks = value && std::find(neutral.begin(), neutral.end(), double(*value)) == neutral.end();
  return asks ? fmt::format("{}", *value) : "";
}
std::string temperature(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::temperature>(parsed, {0, 1});
}
std::string top_k(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::top_k>(parsed, {0, -1});
}
std::string top_p(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::top_p>(parsed, {1});
}
std::string min_p(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::min_p>(parsed, {0});
}
std::string typical_p(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::typical_p>(parsed, {1});
}
// Beams are the sequences that best_of counts; beside beam_width it must say the same.
std::string best_of(const ParsedRequest& parsed) {
  const double width = parsed.use_beam_search ? parsed.beam_width.value_or(parsed.best_of.value_or(0)) : 1;
  return unless_one_of<&ParsedRequest::best_of>(parsed, {0, width});
}
std::string beam_width(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::beam_width>(parsed, {1});
}
std::string length_penalty(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::length_penalty>(parsed, {1});
}
std::string early_stopping(const ParsedRequest& parsed) {
  if (parsed.early_stopping == request::EarlyStopping::Heuristic) return "";
  return parsed.early_stopping == request::EarlyStopping::AtWidth ? "true" : "\"never\"";
}
std::string penalty_alpha(const ParsedRequest& parsed) {
  return unless_one_of<&ParsedRequest::penalty_alpha>(parsed, {0});
}
std::string contrastive_decoding(const ParsedRequest& parsed) {
  return parsed.contrastive_decoding ? "given" : "";
}
std::string speculate(const ParsedRequest& parsed) {
  const request::Speculation asked = parsed.speculate.value_or(request::Speculation::Off);
  return asked == request::Speculation::Off ? "" : fmt::format("\"{}\"", request::name(asked));
}

constexpr unsigned bit(MethodKind kind) {
  return 1u << static_cast<unsigned>(kind);
}
constexpr unsigned kSamples = bit(Sampling) | bit(ContrastiveDecoding);

// Fields that only some methods know. A seed is honoured by all: searches give the same answer in any case.
struct MethodField {
  std::string_view name;
  unsigned known_to;  // bits of methods
  std::string (*asked)(const ParsedRequest&);
};
constexpr MethodField kMethodFields[] = {
    {"temperature", kSamples, temperature},
    {"top_p", kSamples, top_p},
    {"top_k", kSamples | bit(ContrastiveSearch), top_k},
    {"min_p", kSamples, min_p},
    {"typical_p", kSamples, typical_p},
    {"best_of", kSamples, best_of},
    {"beam_width", bit(BeamSearch), beam_width},
    {"length_penalty", bit(BeamSearch), length_penalty},
    {"early_stopping", bit(BeamSearch), early_stopping},
    {"penalty_alpha", bit(ContrastiveSearch), penalty_alpha},
    {"contrastive_decoding", bit(ContrastiveDecoding), contrastive_decoding},
    {"speculate", bit(Sampling), speculate},
};

Status check_fields(const ParsedRequest& parsed, MethodKind kind) {
  for (const MethodField& field : kMethodFields) {
    if ((field.known_to & bit(kind)) != 0) continue;
    const std::string value = field.asked(parsed);
    if (value.empty()) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is {}; it conflicts with {}", field.name, value, name(kind)),
                 std::string(field.name)};
  }
  return {};
}

request::Sampling make_sampling(const ParsedRequest& parsed) {
  request::Sampling out;
  out.temperature = parsed.temperature.value_or(out.temperature);
  out.top_k = parsed.top_k.value_or(out.top_k);
  out.top_p = parsed.top_p.value_or(out.top_p);
  out.min_p = parsed.min_p.value_or(out.min_p);
  out.typical_p = parsed.typical_p.value_or(out.typical_p);
  out.best_of = parsed.best_of.value_or(out.best_of);
  out.seed = parsed.seed;
  return out;
}

request::BeamSearch make_beam_search(const ParsedRequest& parsed) {
  request::BeamSearch beam{.early_stopping = parsed.early_stopping};
  beam.width = parsed.beam_width.value_or(std::max(1, parsed.best_of.value_or(parsed.n)));
  beam.length_penalty = parsed.length_penalty.value_or(beam.length_penalty);
  return beam;
}

request::ContrastiveDecoding make_contrastive_decoding(const ParsedRequest& parsed) {
  request::ContrastiveDecoding method{.sampling = make_sampling(parsed)};
  method.alpha = parsed.contrastive_decoding->alpha.value_or(method.alpha);
  method.beta = parsed.contrastive_decoding->beta.value_or(method.beta);
  return method;
}

}  // namespace

bool is_search(const ParsedRequest& parsed) {
  const MethodKind kind = kind_of(parsed);
  return kind == BeamSearch || kind == ContrastiveSearch;
}

Result<request::Method> make_method(const ParsedRequest& parsed) {
  const MethodKind kind = kind_of(parsed);
  if (Status known = check_fields(parsed, kind); !known) return known.error();
  switch (kind) {
    case BeamSearch:
      return request::Method(make_beam_search(parsed));
    case ContrastiveSearch:
      return request::Method(
          request::ContrastiveSearch{.top_k = parsed.top_k.value_or(4), .alpha = *parsed.penalty_alpha});
    case ContrastiveDecoding:
      return request::Method(make_contrastive_decoding(parsed));
    case Sampling:
      break;
  }
  return request::Method(make_sampling(parsed));
}

}  // namespace sluice::api
