// Operations on text that methods and filters share. Positions are bytes.
#pragma once

#include <vector>

#include "jinja/runtime.h"

namespace sluice::jinja {

enum class Case : uint8_t { Upper, Lower, Capitalize, Title, Swap };
Value change_case(Runtime& runtime, const Text& text, Case wanted);

struct Sides;
// Without the white space, or without the code points of `characters`, at the chosen ends.
Value strip(Runtime& runtime, const Text& text, const Text* characters, Sides sides);
// At most `count` replacements; all where it is negative.
Value replace(Runtime& runtime, const Text& text, const Text& old_text, const Text& new_text, int64_t count);
Value cut(Runtime& runtime, const Text& text, ByteRange range);
// Pieces between separators; a null separator means runs of white space. `most` splits, all where it is
// negative.
std::vector<ByteRange> split(Runtime& runtime, const Text& text, const Text* separator, int64_t most);
std::vector<ByteRange> split_lines(const Text& text, bool keep_ends);
Value join(Runtime& runtime, const Text& separator, const std::vector<Value>& items);
enum class Alignment : uint8_t { Left, Center, Right };
Value align(Runtime& runtime, const Text& text, Alignment alignment, int64_t width,
            std::string_view fill = " ");

}  // namespace sluice::jinja
