#include "jinja/syntax/string_literal.h"

#include <fmt/format.h>

#include "jinja/limits.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char32_t hex_digits(std::string_view body, size_t from, size_t count) {
  char32_t value = 0;
  for (size_t i = from; i < from + count; ++i) {
    const int digit = i < body.size() ? hex_value(body[i]) : -1;
    if (digit < 0) raise(fmt::format("a \\{} escape needs {} hexadecimal digits", body[from - 1], count));
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) raise("an escape names no character");
  return value;
}

// The character of a one-letter escape, or 0.
char simple_escape(char c) {
  constexpr std::string_view letters = "abfnrtv\\'\"";
  constexpr std::string_view values = "\a\b\f\n\r\t\v\\'\"";
  const size_t found = letters.find(c);
  return found == std::string_view::npos ? '\0' : values[found];
}

// Decodes the escape whose letter is at `position`; returns the position after it.
size_t decode_escape(std::string_view body, size_t position, std::string& out) {
  const char c = body[position];
  if (const char simple = simple_escape(c)) {
    out.push_back(simple);
    return position + 1;
  }
  if (c == '\n') return position + 1;
  const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (width > 0) {
    encode(hex_digits(body, position + 1, width), out);
    return position + 1 + width;
  }
  if (c >= '0' && c <= '7') {
    char32_t value = 0;
    size_t end = position;
    while (end < body.size() && end < position + 3 && body[end] >= '0' && body[end] <= '7') {
      value = value * 8 + static_cast<char32_t>(body[end++] - '0');
    }
    encode(value, out);
    return end;
  }
  out.push_back('\\');
  out.push_back(c);
  return position + 1;
}

}  // namespace

std::string decode_string_literal(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out.push_back(body[i++]);
    } else {
      i = decode_escape(body, i + 1, out);
    }
  }
  return out;
}

}  // namespace sluice::jinja
