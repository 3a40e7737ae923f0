#include "api/prompt/base64.h"

#include <array>
#include <cstdint>

namespace sluice::api {

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < group.size() ? static_cast<unsigned char>(group[k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += k <= group.size() ? kLetters[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<uint8_t, 256> values;
  values.fill(64);
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    const uint8_t value = values[static_cast<uint8_t>(c)];
    if (value == 64) return std::nullopt;
    bits = bits << 6 | value;
    if ((have += 6) >= 8) out += static_cast<char>(bits >> (have -= 8) & 0xFF);
  }
  return out;
}

}  // namespace sluice::api
