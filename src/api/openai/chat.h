// POST /v1/chat/completions
#pragma once

#include "api/core/field_table.h"
#include "api/core/service.h"

namespace sluice::api {

const RequestSchema& chat_schema();
Reply chat_completion(const Call& call);

// Fields of a conversation, which other operations take too.
std::span<const Field> conversation_fields();

}  // namespace sluice::api
