// The texts of a request, made shorter where it asks for it.
#pragma once

#include "api/core/answer.h"
#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

// Where the request asks for it: puts the shorter texts into its messages or prompts and reports on them. System messages are
// left alone unless the request says otherwise. May take long.
Problem compress_request(const Call& call, const ServedModel& model, AnswerSetup& setup);

// The same for mode "prefill", once the prompt is encoded: leaves the tokens of it that are run, and sets their positions.
Problem prefill_request(const Call& call, const ServedModel& model, AnswerSetup& setup);

// The object with "compression": {mode, original_tokens, kept_tokens, ...}, where the request asked for it.
json::object with_compression(const AnswerSetup& setup, json::object out);

}  // namespace sluice::api
