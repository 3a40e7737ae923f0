#include "jinja/values/unicode.h"

#include "unicode/unicode.h"

namespace sluice::jinja {

namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Length of the valid sequence at `position`, or 0.
size_t sequence_length(std::string_view bytes, size_t position) {
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte_at(position);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() - position < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(bytes[position + i])) return 0;
  }
  const unsigned char second = byte_at(position + 1);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

CodePoint decode_at(std::string_view bytes, size_t position) {
  const size_t length = sequence_length(bytes, position);
  const auto lead = static_cast<unsigned char>(bytes[position]);
  if (length <= 1) return {lead, 1};
  char32_t value = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    value = value << 6 | (static_cast<unsigned char>(bytes[position + i]) & 0x3Fu);
  return {value, length};
}

size_t previous_start(std::string_view bytes, size_t position) {
  for (size_t length = 1; length <= 4 && length <= position; ++length) {
    const size_t start = position - length;
    if (!is_continuation(bytes[start]))
      return decode_at(bytes, start).length == length ? start : position - 1;
  }
  return position - 1;
}

void encode(char32_t value, std::string& out) {
  unicode::append_utf8(out, value);
}

std::string encode(char32_t value) {
  std::string out;
  encode(value, out);
  return out;
}

size_t count_code_points(std::string_view bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes.size(); i += decode_at(bytes, i).length) ++count;
  return count;
}

size_t byte_position(std::string_view bytes, size_t index) {
  size_t position = 0;
  while (index > 0 && position < bytes.size()) {
    position += decode_at(bytes, position).length;
    --index;
  }
  return position;
}

size_t first_invalid_utf8(std::string_view bytes) {
  size_t position = 0;
  while (position < bytes.size()) {
    const size_t length = sequence_length(bytes, position);
    if (length == 0) return position;
    position += length;
  }
  return position;
}

bool is_space(char32_t value) {
  return unicode::is_whitespace(value) || (value >= 0x1C && value <= 0x1F);
}

bool is_printable(char32_t value) {
  constexpr unicode::CategorySet hidden =
      unicode::sets::others | unicode::set_of(unicode::Category::Cn, unicode::Category::Zl,
                                              unicode::Category::Zp, unicode::Category::Zs);
  return value == ' ' || !unicode::in(value, hidden);
}
bool is_alpha(char32_t value) {
  return unicode::in(value, unicode::sets::letters);
}
bool is_decimal(char32_t value) {
  return unicode::in(value, unicode::set_of(unicode::Category::Nd));
}
bool is_upper(char32_t value) {
  return to_lower(value) != std::u32string(1, value);
}
bool is_lower(char32_t value) {
  return to_upper(value) != std::u32string(1, value);
}

std::u32string to_upper(char32_t value) {
  return unicode::to_full_upper(value);
}

std::u32string to_lower(char32_t value) {
  return unicode::to_full_lower(value);
}

ByteRange strip_space(std::string_view bytes, ByteRange range, Sides sides) {
  while (sides.left && range.begin < range.end) {
    const CodePoint point = decode_at(bytes, range.begin);
    if (!is_space(point.value)) break;
    range.begin += point.length;
  }
  while (sides.right && range.begin < range.end) {
    const size_t start = previous_start(bytes, range.end);
    if (!is_space(decode_at(bytes, start).value)) break;
    range.end = start;
  }
  return range;
}

}  // namespace sluice::jinja
