// The tojson filter: JSON as Python's json.dumps writes it.
#pragma once

#include "jinja/runtime.h"

namespace sluice::jinja {

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // unset: everything on one line
  Text item_separator, key_separator;
};

void print_json(Runtime& runtime, const Value& value, const JsonStyle& style, TextBuilder& out);

Value filter_tojson(Runtime& runtime, const Value& input, const Arguments& arguments);

}  // namespace sluice::jinja
