// Text from files as it may be shown to a person: nothing in it can move the cursor of a terminal or flood
// it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::formats {

// 'text' with control characters and bytes outside ASCII that are not valid UTF-8 as \xNN, cut after 80
// bytes.
std::string quote(std::string_view text);
// The same escapes, without the quotes and the cut.
std::string quote_path(std::string_view path);

// The error with the file it is about in front, unless its message names that file already.
Error about_file(std::string_view path, Error error);

// True where `text` is valid UTF-8 without control characters (below 0x20, and 0x7f): what a name has to be.
bool is_plain_name(std::string_view text);

}  // namespace sluice::formats
