// Random texts for round trips.
#pragma once

#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "unicode/unicode.h"

namespace sluice::tokenizer {

// Up to 30 characters from blocks of many scripts.
inline std::string random_text(std::mt19937& random) {
  constexpr std::pair<uint32_t, uint32_t> blocks[] = {
      {0x20, 0x7E},     {0x9, 0xD},         {0xA0, 0x24F},      {0x370, 0x5FF},
      {0x900, 0xE7F},   {0x2000, 0x2BFF},   {0x3000, 0x9FFF},   {0xAC00, 0xD7A3},
      {0xE000, 0xFFFD}, {0x1F300, 0x1FAFF}, {0x10000, 0x10FFFF}};
  std::string text;
  for (size_t i = random() % 30; i > 0; --i) {
    const auto& [first, last] = blocks[random() % std::size(blocks)];
    unicode::append_utf8(text, first + random() % (last - first + 1));
  }
  return text;
}

// How many texts a test takes; SLUICE_ROUND_TRIPS asks for more.
inline int round_trips(int least) {
  const char* count = std::getenv("SLUICE_ROUND_TRIPS");
  return count == nullptr ? least : std::atoi(count);
}

}  // namespace sluice::tokenizer
