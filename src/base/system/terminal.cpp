#include "base/system/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice {

namespace {

struct Utf8Range {
  unsigned char first_low, first_high;    // of the lead byte
  unsigned char second_low, second_high;  // of the byte after it; later ones are 80..bf
  size_t length;
};

// Table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF.
constexpr Utf8Range kUtf8Ranges[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

struct Range {
  char32_t low, high;
};
template <size_t N>
bool within(char32_t c, const std::array<Range, N>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& r) { return c >= r.low && c <= r.high; });
}
// The blocks that terminals draw two columns wide, and those that add nothing to the line.
constexpr auto kWide = std::to_array<Range>({{0x1100, 0x115F},
                                             {0x2E80, 0x303E},
                                             {0x3041, 0xA4CF},
                                             {0xAC00, 0xD7A3},
                                             {0xF900, 0xFAFF},
                                             {0xFE30, 0xFE6F},
                                             {0xFF00, 0xFF60},
                                             {0xFFE0, 0xFFE6},
                                             {0x1F300, 0x1F64F},
                                             {0x1F680, 0x1F6FF},
                                             {0x1F900, 0x1FAFF},
                                             {0x20000, 0x3FFFD}});
constexpr auto kMarks =
    std::to_array<Range>({{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}});

char32_t decode(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  char32_t value = byte(0) & (0x7Fu >> character.size());
  for (size_t i = 1; i < character.size(); ++i) value = value << 6 | (byte(i) & 0x3Fu);
  return value;
}

}  // namespace

size_t printable_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  for (const Utf8Range& range : kUtf8Ranges) {
    if (lead < range.first_low || lead > range.first_high) continue;
    if (text.size() < range.length || byte(1) < range.second_low || byte(1) > range.second_high) return 0;
    for (size_t i = 2; i < range.length; ++i)
      if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
    return lead == 0xc2 && byte(1) < 0xa0 ? 0 : range.length;  // U+0080..U+009F are controls too
  }
  return 0;
}

std::string escape_controls(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t length = printable_length(text.substr(i));
    if (length == 0 && kept.find(text[i]) != std::string_view::npos) length = 1;
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    } else {
      out.append(text, i, length);
    }
    i += std::max<size_t>(1, length);
  }
  return out;
}

std::string shown_on(int descriptor, std::string_view text) {
  return isatty(descriptor) == 0 ? std::string(text) : escape_controls(text, "\n\t");
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, printable_length(text));
    const char32_t character = decode(text.substr(0, length));
    columns += within(character, kMarks) ? 0 : within(character, kWide) ? 2 : 1;
    text.remove_prefix(length);
  }
  return columns;
}

size_t terminal_width(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace sluice
