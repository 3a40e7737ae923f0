#include "tensor/grids.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace sluice {

namespace {

#include "tensor/grids.inc"

constexpr int8_t kThreeMagnitudes[] = {8, 25, 43};
constexpr int8_t kIq3XxsMagnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

uint16_t u16(const uint8_t* from) {
  return static_cast<uint16_t>(from[0] | from[1] << 8);
}
uint32_t u32(const uint8_t* from) {
  return u16(from) | static_cast<uint32_t>(u16(from + 2)) << 16;
}

// Seven sign bits and, as the eighth, their parity.
uint8_t with_parity(uint32_t seven) {
  return static_cast<uint8_t>(seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7);
}

int8_t signed_value(int8_t magnitude, uint8_t signs, int i) {
  return static_cast<int8_t>((signs >> i) & 1 ? -magnitude : magnitude);
}

// Eight values of two bits each.
void put_eight(int8_t* to, uint16_t entry, uint8_t signs) {
  for (int i = 0; i < 8; ++i) to[i] = signed_value(kThreeMagnitudes[(entry >> (2 * i)) & 3], signs, i);
}

// Two entries of four values of three bits each.
void put_fours(int8_t* to, const uint16_t (&entries)[2], uint8_t signs, bool odd) {
  for (int i = 0; i < 8; ++i) {
    const int code = (entries[i / 4] >> (3 * (i % 4))) & 7;
    to[i] = signed_value(odd ? static_cast<int8_t>(2 * code + 1) : kIq3XxsMagnitudes[code], signs, i);
  }
}

// Eight of -1, 0 and 1, times eight, plus or minus one.
void put_ones(int8_t* to, uint16_t entry, bool minus) {
  for (int i = 0; i < 8; ++i)
    to[i] = static_cast<int8_t>(8 * (((entry >> (2 * i)) & 3) - 1) + (minus ? -1 : 1));
}

int8_t odd_scale(int stored) {
  return static_cast<int8_t>(2 * stored + 1);
}

int nibble_at(const uint8_t* bytes, int i) {
  return (bytes[i / 2] >> (i % 2 * 4)) & 0xf;
}

// {f16 d; {u8 entries[4]; u32 signs: 4 x 7, scale: 4}[8]}
void expand_iq2_xxs(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* from = block + 2 + 8 * group;
    const uint32_t word = u32(from + 4);
    out.scales[2 * group] = out.scales[2 * group + 1] = odd_scale(static_cast<int>(word >> 28));
    for (int i = 0; i < 4; ++i)
      put_eight(out.values + 32 * group + 8 * i, kIq2XxsBook[from[i]], with_parity((word >> (7 * i)) & 0x7f));
  }
}

// {f16 d; u16 {entry: 9, signs: 7}[32]; u8 scales[8]}
void expand_iq2_xs(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  for (int i = 0; i < 16; ++i) out.scales[i] = odd_scale(nibble_at(block + 66, i));
  for (int i = 0; i < 32; ++i) {
    const uint16_t word = u16(block + 2 + 2 * i);
    put_eight(out.values + 8 * i, kIq2XsBook[word & 511], with_parity(word >> 9));
  }
}

// {f16 d; u8 entries[32]; u8 signs[32]; u8 high[8]; u8 scales[8]}
void expand_iq2_s(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  for (int i = 0; i < 16; ++i) out.scales[i] = odd_scale(nibble_at(block + 74, i));
  for (int i = 0; i < 32; ++i) {
    const int high = (block[66 + i / 4] >> (i % 4 * 2)) & 3;
    put_eight(out.values + 8 * i, kIq2SBook[block[2 + i] | high << 8], block[34 + i]);
  }
}

// {f16 d; u8 entries[64]; u32 {signs: 4 x 7, scale: 4}[8]}
void expand_iq3_xxs(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  for (int group = 0; group < 8; ++group) {
    const uint32_t word = u32(block + 66 + 4 * group);
    out.scales[2 * group] = out.scales[2 * group + 1] = odd_scale(static_cast<int>(word >> 28));
    for (int i = 0; i < 4; ++i) {
      const uint8_t* from = block + 2 + 8 * group + 2 * i;
      put_fours(out.values + 32 * group + 8 * i, {kIq3XxsBook[from[0]], kIq3XxsBook[from[1]]},
                with_parity((word >> (7 * i)) & 0x7f), false);
    }
  }
}

// {f16 d; u8 entries[64]; u8 high[8]; u8 signs[32]; u8 scales[4]}
void expand_iq3_s(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  for (int i = 0; i < 16; ++i) out.scales[i] = odd_scale(nibble_at(block + 106, i / 2));
  const auto entry = [&](int i) {
    return kIq3SBook[block[2 + i] | ((block[66 + i / 8] >> (i % 8)) & 1) << 8];
  };
  for (int i = 0; i < 32; ++i)
    put_fours(out.values + 8 * i, {entry(2 * i), entry(2 * i + 1)}, block[74 + i], true);
}

// {f16 d; u8 entries[32]; u16 {high: 4 x 3, scale: 3, minus: 1}[8]}
void expand_iq1_s(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  for (int group = 0; group < 8; ++group) {
    const uint16_t word = u16(block + 34 + 2 * group);
    out.scales[2 * group] = out.scales[2 * group + 1] = odd_scale((word >> 12) & 7);
    for (int i = 0; i < 4; ++i) {
      const int entry = block[2 + 4 * group + i] | ((word >> (3 * i)) & 7) << 8;
      put_ones(out.values + 32 * group + 8 * i, kIq1Book[entry], (word & 0x8000) != 0);
    }
  }
}

// {u8 entries[32]; u8 {high: 3, minus: 1}[2][16]; u16 {scale: 3}[4][4]}, whose top four bits make up d
void expand_iq1_m(const uint8_t* block, GridBlock& out) {
  out.d = 0;
  for (int i = 0; i < 4; ++i) {
    const uint16_t word = u16(block + 48 + 2 * i);
    out.d = static_cast<uint16_t>(out.d | (word >> 12) << (4 * i));
    for (int k = 0; k < 4; ++k) out.scales[4 * i + k] = odd_scale((word >> (3 * k)) & 7);
  }
  for (int i = 0; i < 32; ++i) {
    const int bits = nibble_at(block + 32, i);
    put_ones(out.values + 8 * i, kIq1Book[block[i] | (bits & 7) << 8], (bits & 8) != 0);
  }
}

// {f16 d; u16 high pairs of the scales; u8 low nibbles[4]; u8 quants[128]}
void expand_iq4_xs(const uint8_t* block, GridBlock& out) {
  out.d = u16(block);
  const uint16_t high = u16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int scale = (nibble_at(block + 4, group) | ((high >> (2 * group)) & 3) << 4) - 32;
    out.scales[2 * group] = out.scales[2 * group + 1] = static_cast<int8_t>(scale);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = block[8 + 16 * group + i % 16];
      out.values[32 * group + i] = kIq4Values[i < 16 ? byte & 0xf : byte >> 4];
    }
  }
}

// -1, 0 and 1 are -8, 0 and 8 of the table, whose factor is an eighth.
int8_t ternary(int stored) {
  return static_cast<int8_t>(8 * (stored - 1));
}

constexpr uint8_t kPowersOfThree[] = {1, 3, 9, 27, 81};

// {u8 five to a byte[48]; u8 four to a byte[4]; f16 d}
void expand_tq1_0(const uint8_t* block, GridBlock& out) {
  out.d = u16(block + 52);
  std::memset(out.scales, 1, sizeof out.scales);
  const auto digit = [](uint8_t byte, int place) {
    return static_cast<uint8_t>(byte * kPowersOfThree[place]) * 3 >> 8;
  };
  for (int i = 0; i < 160; ++i) out.values[i] = ternary(digit(block[i % 32], i / 32));
  for (int i = 0; i < 80; ++i) out.values[160 + i] = ternary(digit(block[32 + i % 16], i / 16));
  for (int i = 0; i < 16; ++i) out.values[240 + i] = ternary(digit(block[48 + i % 4], i / 4));
}

// {u8 four to a byte[64]; f16 d}
void expand_tq2_0(const uint8_t* block, GridBlock& out) {
  out.d = u16(block + 64);
  std::memset(out.scales, 1, sizeof out.scales);
  for (int i = 0; i < 256; ++i)
    out.values[i] = ternary((block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3);
}

}  // namespace

void expand_grid(DType type, const uint8_t* block, GridBlock& out) {
  switch (type) {
    case DType::IQ1_S:
      return expand_iq1_s(block, out);
    case DType::IQ1_M:
      return expand_iq1_m(block, out);
    case DType::IQ2_XXS:
      return expand_iq2_xxs(block, out);
    case DType::IQ2_XS:
      return expand_iq2_xs(block, out);
    case DType::IQ2_S:
      return expand_iq2_s(block, out);
    case DType::IQ3_XXS:
      return expand_iq3_xxs(block, out);
    case DType::IQ3_S:
      return expand_iq3_s(block, out);
    case DType::IQ4_XS:
      return expand_iq4_xs(block, out);
    case DType::TQ1_0:
      return expand_tq1_0(block, out);
    case DType::TQ2_0:
      return expand_tq2_0(block, out);
    default:
      SLUICE_CHECK(!"expand_grid is for types of code books");
  }
}

}  // namespace sluice
