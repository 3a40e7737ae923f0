#include "text/jinja_unicode.h"

#include <algorithm>
#include <iterator>

#include "text/jinja_unicode_tables.h"

namespace sluice::text::jinja {

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

template <class Table>
const auto* find_range(const Table& table, char32_t value) {
  const auto next = std::upper_bound(std::begin(table), std::end(table), value,
                                     [](char32_t at, const auto& range) { return at < range.first; });
  using Range = std::remove_reference_t<decltype(*next)>;
  if (next == std::begin(table)) return static_cast<Range*>(nullptr);
  const auto found = std::prev(next);
  return value <= found->last ? found : static_cast<Range*>(nullptr);
}

template <class Wide, class Simple>
std::u32string change_case(const Wide& wide, const Simple& simple, char32_t value) {
  for (const auto& row : wide) {
    if (row.point != value) continue;
    return row.c == 0 ? std::u32string{row.a, row.b} : std::u32string{row.a, row.b, row.c};
  }
  const auto* range = find_range(simple, value);
  if (range == nullptr || (value - range->first) % static_cast<char32_t>(range->stride) != 0) {
    return std::u32string(1, value);
  }
  return std::u32string(1, static_cast<char32_t>(static_cast<int32_t>(value) + range->delta));
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
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
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
  if (value < 0x80)
    return value == ' ' || (value >= 0x09 && value <= 0x0D) || (value >= 0x1C && value <= 0x1F);
  return value == 0x85 || value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) ||
         value == 0x2028 || value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_printable(char32_t value) {
  return find_range(unicode::not_printable, value) == nullptr;
}
bool is_alpha(char32_t value) {
  return find_range(unicode::alpha, value) != nullptr;
}
bool is_decimal(char32_t value) {
  return find_range(unicode::decimal, value) != nullptr;
}
bool is_upper(char32_t value) {
  return to_lower(value) != std::u32string(1, value);
}
bool is_lower(char32_t value) {
  return to_upper(value) != std::u32string(1, value);
}

std::u32string to_upper(char32_t value) {
  if (value < 0x80) return std::u32string(1, value >= 'a' && value <= 'z' ? value - 32 : value);
  return change_case(unicode::wide_upper, unicode::upper_case, value);
}

std::u32string to_lower(char32_t value) {
  if (value < 0x80) return std::u32string(1, value >= 'A' && value <= 'Z' ? value + 32 : value);
  return change_case(unicode::wide_lower, unicode::lower_case, value);
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

}  // namespace sluice::text::jinja
