// How run and chat choose tokens, and what serve answers requests with that do not say.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "request/constraint.h"
#include "request/sampling_params.h"

namespace sluice::llm {

// The flags of the fields that models have settings for; those that are not given stay empty.
void declare_defaults(OptionSet& options, request::SamplingDefaults& defaults);

struct SamplingFlags {
  // Of models whose makers say nothing.
  static constexpr request::SamplingDefaults kFallback{.temperature = 0.8, .top_p = 0.95, .top_k = 40};

  request::SamplingDefaults chosen;
  int64_t seed = -1;    // -1: another one each time
  int max_tokens = -1;  // -1: until the model ends or the context is full
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string json_schema, grammar;  // files

  void declare(OptionSet& options);
  // Fills what was not given from the model's settings, else from the fallback.
  void settle(const request::SamplingDefaults& model);
  // `room` is the most tokens that fit.
  request::SamplingParams params(int room) const;
  // What the answer must be, read from the file; nothing where no flag says it.
  Result<std::optional<request::Constraint>> constraint() const;
};

}  // namespace sluice::llm
