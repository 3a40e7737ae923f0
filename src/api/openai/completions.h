// POST /v1/completions
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& completion_schema();
Reply completion(const Call& call);

// A string, a list of strings, a list of token ids or a list of such lists, at most 256 prompts. `name` is the field's.
Status read_prompts(const json::value& value, std::string_view name, ParsedRequest& parsed);

}  // namespace sluice::api
