// Tokens of texts and conversations, without generating: vLLM's and llama.cpp's forms.
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& tokenize_schema();
const RequestSchema& detokenize_schema();
const RequestSchema& template_schema();
Reply tokenize(const Call& call);        // POST /tokenize
Reply detokenize(const Call& call);      // POST /detokenize
Reply apply_template(const Call& call);  // POST /apply-template

}  // namespace sluice::api
