// A line of a job file: the prompt or conversation and the parameters of one request, under the API's names.
#pragma once

#include "api/core/parsed_request.h"
#include "base/json.h"
#include "base/result.h"

namespace sluice::api {

// The draft has one prompt or messages. An error names field, value and limit; what the API does not offer is refused
// here too.
Result<ParsedRequest> read_job_line(const json::object& line);

}  // namespace sluice::api
