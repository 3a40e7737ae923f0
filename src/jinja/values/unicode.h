// Code points of UTF-8 text, as Python counts them. A byte that is not part of valid UTF-8 counts as one.
#pragma once

#include <string>
#include <string_view>

#include "jinja/values/text.h"

namespace sluice::jinja {

struct CodePoint {
  char32_t value = 0;
  size_t length = 1;  // bytes it takes at its place
};

// REQUIRES: position < bytes.size()
CodePoint decode_at(std::string_view bytes, size_t position);
// Start of the code point that ends before `position`. REQUIRES: position > 0
size_t previous_start(std::string_view bytes, size_t position);
void encode(char32_t value, std::string& out);
std::string encode(char32_t value);

size_t count_code_points(std::string_view bytes);
// Byte position of the code point with this index; bytes.size() where it is past the end.
size_t byte_position(std::string_view bytes, size_t index);
// Byte position of the first byte that breaks UTF-8, or bytes.size().
size_t first_invalid_utf8(std::string_view bytes);

// Classes and case of Python's str methods.
bool is_space(char32_t value);
bool is_printable(char32_t value);
bool is_alpha(char32_t value);
bool is_decimal(char32_t value);
bool is_upper(char32_t value);
bool is_lower(char32_t value);
std::u32string to_upper(char32_t value);
std::u32string to_lower(char32_t value);

// The part of `range` without white space at either end.
struct Sides {
  bool left = true;
  bool right = true;
};
ByteRange strip_space(std::string_view bytes, ByteRange range, Sides sides = {});

}  // namespace sluice::jinja
