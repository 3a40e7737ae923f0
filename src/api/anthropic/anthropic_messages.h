// Anthropic's messages: content as blocks, calls and their results among them, the system prompt apart.
#pragma once

#include "api/fields/field_table.h"

namespace sluice::api {

// A string or text blocks; a block that only carries a client's billing header is dropped, as its changing digits would
// keep prefixes from being shared. Becomes the first message.
Status read_anthropic_system(const json::value& value, ParsedRequest& parsed);
// REQUIRES: the system prompt was read before. A last message of the assistant is continued.
Status read_anthropic_messages(const json::value& value, ParsedRequest& parsed);

}  // namespace sluice::api
