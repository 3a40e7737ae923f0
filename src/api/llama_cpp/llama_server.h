// What clients of llama.cpp's server call: POST /completion, GET /props.
#pragma once

#include "api/core/field_table.h"
#include "api/core/service.h"

namespace sluice::api {

const RequestSchema& llama_completion_schema();
Reply llama_completion(const Call& call);
Reply llama_properties(const Call& call);

}  // namespace sluice::api
