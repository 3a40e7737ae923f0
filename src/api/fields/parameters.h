// A draft to what the engine takes: sampling parameters and the making of text.
#pragma once

#include <string>

#include "api/core/parsed_request.h"
#include "base/result.h"
#include "engine/text_stream.h"
#include "request/sampling_params.h"
#include "tokenizer/tokenizer.h"

namespace sluice::api {

struct Parameters {
  request::SamplingParams sampling;
  engine::TextOptions text;
  bool has_max_tokens = false;  // otherwise sampling.max_tokens is to be set to what fits
  int priority = 0;             // higher goes first
  std::string cache_salt;
};

// Gives the fields that the request left out what the model is to be sampled with, else what its dialect has.
void fill_defaults(ParsedRequest& parsed, const request::SamplingDefaults& model);

// The tokenizer turns bad_words into tokens; without one (nullptr) they are refused. What depends on the vocabulary's
// size is checked by request::validate().
Result<Parameters> make_parameters(const ParsedRequest& parsed, const tokenizer::Tokenizer* tokenizer);

}  // namespace sluice::api
