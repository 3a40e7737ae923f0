// Text on terminals: what files and models say is shown, and never obeyed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

// Bytes of the character that `text`, which is not empty, begins with, where it is valid UTF-8 and no control character
// (below U+0020, U+007F to U+009F); else 0.
size_t printable_length(std::string_view text);

// The text with every byte that is not part of a printable character as \xNN; those in `kept` stay.
std::string escape_controls(std::string_view text, std::string_view kept = {});

// The text as it may be written to the descriptor: as it is where that is no terminal, else with control characters other
// than line breaks and tabs escaped.
std::string shown_on(int descriptor, std::string_view text);

// Columns that the text's characters take, none of which is a control character: 2 for wide ones, 0 for marks.
size_t columns_of(std::string_view text);
// Columns of the terminal; 0 where the descriptor is none or does not say.
size_t terminal_width(int descriptor);

}  // namespace sluice
