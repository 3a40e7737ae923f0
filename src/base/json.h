// JSON from outside: strict parsing with limits, and typed look-ups that return errors naming the key.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/interrupt.h"
#include "base/result.h"

namespace sluice {

namespace json = boost::json;

struct JsonLimits {
  size_t depth = 64;
  size_t bytes = size_t{128} << 20;
  size_t keys = size_t{1} << 28;   // of one object
  Interrupt* interrupt = nullptr;  // may stop the parsing; null: nothing does
};

// Rejects what RFC 8259 rejects, and also: duplicate keys, invalid UTF-8, numbers that are not finite, depth
// and sizes over the limits. `what` names the text in the error ("config.json", "request body"). The value lives in
// `storage`; a monotonic resource makes a large document cheap to read and to drop. Keys are hashed with the process's
// own random key: time is linear in the text whatever its keys are.
Result<json::value> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {},
                               json::storage_ptr storage = {});

// The text of a value on one line, numbers in their shortest form: 0.5 where the library's own writer has 5E-1. Numbers
// that are not finite become null.
std::string write_json(const json::value& value);
void write_json(const json::value& value, std::string& out);

// Look-ups in an object. A missing key or null gives std::nullopt; a value of another kind is an error.
// get_int accepts a float only where it is a whole number.
Result<std::optional<int64_t>> get_int(const json::object& object, std::string_view key);
Result<std::optional<double>> get_number(const json::object& object, std::string_view key);
Result<std::optional<bool>> get_bool(const json::object& object, std::string_view key);
Result<std::optional<std::string>> get_string(const json::object& object, std::string_view key);

}  // namespace sluice
