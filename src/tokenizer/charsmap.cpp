#include "tokenizer/charsmap.h"

#include <fmt/format.h>

#include "unicode/utf8_stream.h"

namespace sluice::tokenizer {

namespace {

uint32_t read_little_endian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

// The fields of a unit of the double array.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 1U << 9) >> 6);
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  if (blob.size() < 4) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("precompiled charsmap: {} bytes, at least 4 wanted", blob.size())};
  }
  const uint32_t trie_bytes = read_little_endian(blob, 0);
  if (trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0) {
    return Error{ErrorCode::Corrupt, fmt::format("precompiled charsmap: trie of {} bytes in a blob of {}",
                                                 trie_bytes, blob.size())};
  }
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  for (size_t i = 0; i < map.units_.size(); ++i) map.units_[i] = read_little_endian(blob, 4 + i * 4);
  map.replacements_ = blob.substr(4 + trie_bytes);
  if (!unicode::is_valid_utf8(map.replacements_)) {
    return Error{ErrorCode::Corrupt, "precompiled charsmap: the replacements are not UTF-8"};
  }
  return map;
}

std::string_view Charsmap::replacement(uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  const std::string_view rest = std::string_view(replacements_).substr(offset);
  return rest.substr(0, rest.find('\0'));
}

Charsmap::Match Charsmap::walk(std::string_view text, bool wants_longest) const {
  Match found;
  if (units_.empty()) return found;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const bool is_leaf = has_leaf(units_[node]);
    node ^= offset_of(units_[node]);
    if (!is_leaf) continue;
    if (node >= units_.size()) break;
    found = {i + 1, replacement(value_of(units_[node]))};
    if (!wants_longest) break;
  }
  // A cut inside of a character is no key of a well-formed table.
  const bool is_whole =
      found.size == text.size() || (static_cast<unsigned char>(text[found.size]) & 0xC0) != 0x80;
  return is_whole && unicode::is_valid_utf8(found.replacement) ? found : Match{};
}

Result<std::string> decode_base64(std::string_view text, std::string_view what) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0)
      return Error{ErrorCode::Corrupt, fmt::format("{}: byte {} in base64", what, static_cast<int>(c))};
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFF);
    }
  }
  if (count >= 6)
    return Error{ErrorCode::Corrupt, fmt::format("{}: base64 of {} characters", what, text.size())};
  return out;
}

}  // namespace sluice::tokenizer
