// What clients of llama.cpp's server call: POST /completion, GET /props.
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& llama_completion_schema();
Reply llama_completion(const Call& call);
Reply llama_properties(const Call& call);

}  // namespace sluice::api
