// POST /v1/chat/completions
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& chat_schema();
Reply chat_completion(const Call& call);

// Fields of a conversation, which other operations take too.
std::span<const Field> conversation_fields();

}  // namespace sluice::api
