// A format of calls that is in no table, from what a template writes around known names and arguments.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "chat/formats/output_format.h"

namespace sluice::chat {

// What two calls hold, in order: each has both arguments.
struct KnownCalls {
  std::array<std::string_view, 2> names, keys, values;
};

// Nothing where the text shows no mark before its calls, or no syntax that could be read.
std::optional<ToolFormat> derive_from_turn(std::string_view turn, const KnownCalls& known);

}  // namespace sluice::chat
