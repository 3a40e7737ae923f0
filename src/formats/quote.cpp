#include "formats/quote.h"

#include <fmt/format.h>

#include <cstdint>

namespace sluice::formats {

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

// Bytes of the character that `text` begins with, where it is one that may be shown; else 0.
size_t plain_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  for (const Utf8Range& range : kUtf8Ranges) {
    if (lead < range.first_low || lead > range.first_high) continue;
    if (text.size() < range.length || byte(1) < range.second_low || byte(1) > range.second_high) return 0;
    for (size_t i = 2; i < range.length; ++i) {
      if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
    }
    return lead == 0xc2 && byte(1) < 0xa0 ? 0 : range.length;  // U+0080..U+009F are controls too
  }
  return 0;
}

std::string escape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = plain_length(text.substr(i));
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    } else {
      out.append(text, i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace

std::string quote(std::string_view text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown) return "'" + escape(text) + "'";
  return fmt::format("'{}'… ({} bytes)", escape(text.substr(0, kShown)), text.size());
}

std::string quote_path(std::string_view path) {
  return escape(path);
}

bool is_plain_name(std::string_view text) {
  while (!text.empty()) {
    const size_t length = plain_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace sluice::formats
