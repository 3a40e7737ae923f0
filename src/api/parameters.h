// The parameters of a request as JSON, under the names that OpenAI's API and vLLM use, to what the engine takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/choice_text.h"
#include "sched/sampling_params.h"
#include "text/tokenizer.h"

namespace sluice::api {

struct Parameters {
  sched::SamplingParams sampling;
  engine::TextOptions text;
  bool has_max_tokens = false;  // otherwise sampling.max_tokens is to be set to what fits
  int priority = 0;
  std::string cache_salt;
};

// Reads every known field of `body`; other fields are left to the caller. An error names field, value and limit. The
// tokenizer turns bad_words into tokens; without one (nullptr) they are refused. What depends on the vocabulary's size is
// checked by sched::validate().
Result<Parameters> read_parameters(const json::object& body, const text::Tokenizer* tokenizer);

}  // namespace sluice::api
