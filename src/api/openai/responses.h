// OpenAI's POST /v1/responses, without a store, and /v1/responses/input_tokens.
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& response_schema();
const RequestSchema& input_tokens_schema();
Reply create_response(const Call& call);
Reply count_input_tokens(const Call& call);

}  // namespace sluice::api
