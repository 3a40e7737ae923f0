// JSON files as Python's programs publish them.
#pragma once

#include <string_view>

#include "base/json.h"

namespace sluice {

// parse_json of a text that may hold the constants that Python's json writes beside JSON: NaN, Infinity and -Infinity become
// {"__float__": "Infinity"}, as newer releases of transformers write them.
Result<json::value> parse_published_json(std::string_view text, std::string_view what);

}  // namespace sluice
