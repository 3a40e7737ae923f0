// Anthropic's POST /v1/messages and /v1/messages/count_tokens.
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& message_schema();
const RequestSchema& count_schema();
Reply create_message(const Call& call);
Reply count_tokens(const Call& call);

}  // namespace sluice::api
