// What the schema of a tool says of one of its arguments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice::chat {

// The schema behind references within `root`; itself where it has none, or where they lead nowhere.
const json::value& resolve(const json::value& root, const json::value& schema);

// Names of types that the schema allows; empty where it does not say.
std::vector<std::string> schema_types(const json::value& root, const json::value& schema);

// A member of a schema that is an object; null where there is none.
const json::value* keyword(const json::value& schema, std::string_view name);

}  // namespace sluice::chat
