// The formats of strings that are asserted: how the grammar holds them, and how a finished value is checked.
#pragma once

#include <string_view>

namespace sluice::grammar {

struct StringFormat {
  std::string_view name;
  // What a finished value must match; empty where only the grammar knows the format.
  std::string_view check;
  // The grammar holds `check` itself, which is exact; else its own form of the format, which is narrower.
  bool held_by_check = false;
};

// Null for formats that are notes.
const StringFormat* find_format(std::string_view name);

}  // namespace sluice::grammar
