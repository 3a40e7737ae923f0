// Which method chooses the tokens of a request: sampling, beam search, contrastive search or contrastive decoding.
#pragma once

#include "api/core/parsed_request.h"
#include "base/result.h"
#include "request/sampling_params.h"

namespace sluice::api {

// Whether the request asks for beams or contrastive search, which sample nothing.
bool is_search(const ParsedRequest& parsed);

// Beam search by use_beam_search; contrastive search by penalty_alpha, as in transformers; contrastive decoding by an
// object {alpha, beta}. A field that the method has no use for is refused by name, unless its value asks for nothing.
Result<request::Method> make_method(const ParsedRequest& parsed);

}  // namespace sluice::api
