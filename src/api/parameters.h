// A draft to what the engine takes: sampling parameters and the making of text.
#pragma once

#include <string>

#include "api/draft.h"
#include "base/result.h"
#include "engine/choice_text.h"
#include "sched/sampling_params.h"
#include "text/tokenizer.h"

namespace sluice::api {

struct Parameters {
  sched::SamplingParams sampling;
  engine::TextOptions text;
  bool has_max_tokens = false;  // otherwise sampling.max_tokens is to be set to what fits
  int priority = 0;             // higher goes first
  std::string cache_salt;
};

// Gives the fields that the request left out what the model is to be sampled with, else what its dialect has.
void fill_defaults(Draft& draft, const sched::SamplingDefaults& model);

// The tokenizer turns bad_words into tokens; without one (nullptr) they are refused. What depends on the vocabulary's
// size is checked by sched::validate().
Result<Parameters> make_parameters(const Draft& draft, const text::Tokenizer* tokenizer);

}  // namespace sluice::api
