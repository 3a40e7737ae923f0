// The texts of a request, made shorter where it asks for it.
#pragma once

#include "api/core/answer.h"
#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

// Puts the shorter texts into the draft's messages or prompts and reports on them. System messages are left alone unless
// the draft says otherwise. May take long. REQUIRES: parsed.compress
Problem compress_request(const Call& call, const ServedModel& model, ParsedRequest& parsed,
                         CompressionReport& out);

// The object with "compression": {mode, original_tokens, kept_tokens, ...}, where the request asked for it.
json::object with_compression(const AnswerSetup& setup, json::object out);

}  // namespace sluice::api
