// How 32 elements of each block type become signed bytes in registers, and which scales go with them:
//   weight = scale * byte (+ min), where the byte may carry an integer scale per 16 elements besides.
// Layouts are those of tensor/blocks.cpp. Included by the level files only.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd/kernel_table.h"
#include "tensor/float_tables.h"
#include "tensor/grids.h"

namespace sluice::kernels::cpu {
namespace {

inline uint16_t u16_at(const uint8_t* from) {
  uint16_t value;
  __builtin_memcpy(&value, from, 2);
  return value;
}

using Rows4 = const uint8_t* const (&)[4];

// The f16 at `offset` of each row.
template <class I>
typename I::F4 halves_at(Rows4 rows, int64_t offset) {
  uint64_t bits = 0;
  for (int r = 0; r < 4; ++r) bits |= static_cast<uint64_t>(u16_at(rows[r] + offset)) << (16 * r);
  return I::halves4(bits);
}

template <class I>
typename I::F4 integers(Rows4 rows, int64_t offset, int (*of)(const uint8_t*, int), int group) {
  int values[4];
  for (int r = 0; r < 4; ++r) values[r] = of(rows[r] + offset, group);
  return I::to_float4(I::set4(values[0], values[1], values[2], values[3]));
}

template <class I>
typename I::F4 negated(typename I::F4 value) {
  return I::mul4(value, I::splat4(-1.0f));
}

// 16 bytes of nibbles: elements 0 to 15 lie low, 16 to 31 high.
template <class I>
struct Nibbles {
  typename I::B16 low;
  typename I::B16 high;
  explicit Nibbles(const uint8_t* from) {
    const auto both = I::load_bytes(from);
    low = I::bit_and(both, I::bytes(0xf));
    high = I::shift_right(both, 4);
  }
};

// Bit i of 16 bits to byte i, as `value` or 0.
template <class I>
typename I::B16 bits_to_bytes(uint16_t bits, uint8_t value) {
  static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const auto bit = I::load_bytes(kBit);
  return I::bit_and(I::equal(I::bit_and(I::spread(bits), bit), bit), I::bytes(value));
}

template <class I>
struct Q4_0 {
  static constexpr int kBytes = 18, kPieces = 1;  // pieces of 32 elements in a stored block
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 2);
    return I::join(I::subtract(nibbles.low, I::bytes(8)), I::subtract(nibbles.high, I::bytes(8)));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at); }
};

template <class I>
struct Q4_1 {
  static constexpr int kBytes = 20, kPieces = 1;
  static constexpr bool kMin = true, kScaledHalves = false, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 4);
    return I::join(nibbles.low, nibbles.high);
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at); }
  static typename I::F4 min(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at + 2); }
};

template <class I>
struct Q5_0 {
  static constexpr int kBytes = 22, kPieces = 1;
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 6);
    const auto low = I::bit_or(nibbles.low, bits_to_bytes<I>(u16_at(block + 2), 16));
    const auto high = I::bit_or(nibbles.high, bits_to_bytes<I>(u16_at(block + 4), 16));
    return I::join(I::subtract(low, I::bytes(16)), I::subtract(high, I::bytes(16)));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at); }
};

template <class I>
struct Q5_1 {
  static constexpr int kBytes = 24, kPieces = 1;
  static constexpr bool kMin = true, kScaledHalves = false, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 8);
    return I::join(I::bit_or(nibbles.low, bits_to_bytes<I>(u16_at(block + 4), 16)),
                   I::bit_or(nibbles.high, bits_to_bytes<I>(u16_at(block + 6), 16)));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at); }
  static typename I::F4 min(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at + 2); }
};

template <class I>
struct Q8_0 {
  static constexpr int kBytes = 34, kPieces = 1;
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    return I::join(I::load_bytes(block + 2), I::load_bytes(block + 18));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at); }
};

template <class I>
struct Iq4Nl {
  static constexpr int kBytes = 18, kPieces = 1;
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false;
  // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
  static constexpr uint8_t kValues[16] = {129, 152, 173, 191, 207, 221, 234, 246,
                                          1,   13,  25,  38,  53,  69,  89,  113};
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 2);
    const auto values = I::load_bytes(kValues);
    return I::join(I::lookup(values, nibbles.low), I::lookup(values, nibbles.high));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at); }
};

// Nibbles that index a table of floats, which is rounded to bytes.
template <class I, DType type>
struct FloatTable {
  static constexpr int kBytes = 18, kPieces = 1;
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false;
  struct Table {
    uint8_t values[16];
    constexpr Table() : values{} {
      for (size_t i = 0; i < 16; ++i) values[i] = static_cast<uint8_t>(byte_table(type)[i]);
    }
  };
  static constexpr Table kTable{};
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 2);
    const auto values = I::load_bytes(kTable.values);
    return I::join(I::lookup(values, nibbles.low), I::lookup(values, nibbles.high));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) {
    return I::mul4(halves_at<I>(rows, at), I::splat4(byte_factor(type)));
  }
};

template <class I>
struct Mxfp4 {
  static constexpr int kBytes = 17, kPieces = 1;
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false;
  // e2m1 doubled: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives
  static constexpr uint8_t kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, 255, 254, 253, 252, 250, 248, 244};
  static typename I::I8x32 unpack(const uint8_t* block, int) {
    const Nibbles<I> nibbles(block + 1);
    const auto values = I::load_bytes(kValues);
    return I::join(I::lookup(values, nibbles.low), I::lookup(values, nibbles.high));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) {
    float scales[4];
    for (int r = 0; r < 4; ++r) {
      const uint32_t exponent = rows[r][at];
      const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
      __builtin_memcpy(&scales[r], &bits, 4);
    }
    return I::load4(scales);
  }
};

// Of 16 columns each, two to a block of 32: e2m1 with a scale of its own.
template <class I>
struct F4_16 {
  static constexpr int kBytes = 20, kPieces = 1;
  static constexpr bool kMin = false, kScaledHalves = false, kMinHalves = false, kFloatHalves = true;
  static typename I::I8x32 unpack(const uint8_t* block, int) { return Mxfp4<I>::unpack(block + 3, 0); }
  static typename I::F4 half_scale(Rows4 rows, int64_t at, int half) {
    return halves_at<I>(rows, at + 2 * half);
  }
};

template <class I>
struct Q4_Z : Q4_1<I> {
  static typename I::F4 min(Rows4 rows, int64_t at, int) {
    return negated<I>(I::mul4(halves_at<I>(rows, at), halves_at<I>(rows, at + 2)));
  }
};

// -- super-blocks of 256: piece p is elements [32 p, 32 p + 32)

// Two bits of each element: 32 bytes hold four pieces.
template <class I>
typename I::B16 two_bits(const uint8_t* quants, int piece, int half) {
  const auto stored = I::load_bytes(quants + piece / 4 * 32 + half * 16);
  return I::bit_and(I::shift_right(stored, piece % 4 * 2), I::bytes(3));
}

// Four bits of each element: 32 bytes hold two pieces.
template <class I>
typename I::B16 four_bits(const uint8_t* quants, int piece, int half) {
  const auto stored = I::load_bytes(quants + piece / 2 * 32 + half * 16);
  return I::bit_and(I::shift_right(stored, piece % 2 * 4), I::bytes(0xf));
}

// One bit of each element, at place `to`: 32 bytes hold eight pieces.
template <class I>
typename I::B16 one_bit(const uint8_t* bits, int piece, int half, int to) {
  const auto stored = I::shift_right(I::load_bytes(bits + half * 16), piece);
  return I::shift_left(I::bit_and(stored, I::bytes(1)), to);
}

template <class I>
struct Q2_K {
  static constexpr int kBytes = 84, kPieces = 8;
  static constexpr bool kMin = false, kScaledHalves = true, kMinHalves = true;
  static typename I::I8x32 unpack(const uint8_t* block, int piece) {
    return I::join(two_bits<I>(block + 16, piece, 0), two_bits<I>(block + 16, piece, 1));
  }
  static int half_scale(const uint8_t* block, int half) { return block[half] & 0xf; }
  static int half_min(const uint8_t* block, int half) { return block[half] >> 4; }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at + 80); }
  static typename I::F4 min_half(Rows4 rows, int64_t at, int half) {
    return negated<I>(I::mul4(halves_at<I>(rows, at + 82), integers<I>(rows, at, half_min, half)));
  }
};

template <class I>
struct Q3_K {
  static constexpr int kBytes = 110, kPieces = 8;
  static constexpr bool kMin = false, kScaledHalves = true, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int piece) {
    const auto half = [=](int h) {
      return I::subtract(I::bit_or(two_bits<I>(block + 32, piece, h), one_bit<I>(block, piece, h, 2)),
                         I::bytes(4));
    };
    return I::join(half(0), half(1));
  }
  static int half_scale(const uint8_t* block, int half) {
    const int low = (block[96 + half % 8] >> (half / 8 * 4)) & 0xf;
    const int high = (block[104 + half % 4] >> (half / 4 * 2)) & 3;
    return (low | high << 4) - 32;
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at + 108); }
};

// The 6-bit scales and mins that Q4_K and Q5_K share.
inline int six_bit_scale(const uint8_t* packed, int piece) {
  if (piece < 4) return packed[piece] & 0x3f;
  return (packed[piece + 4] & 0xf) | ((packed[piece - 4] >> 2) & 0x30);
}
inline int six_bit_min(const uint8_t* packed, int piece) {
  if (piece < 4) return packed[piece + 4] & 0x3f;
  return (packed[piece + 4] >> 4) | ((packed[piece] >> 2) & 0x30);
}

template <class I>
struct Q4_K {
  static constexpr int kBytes = 144, kPieces = 8;
  static constexpr bool kMin = true, kScaledHalves = false, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int piece) {
    return I::join(four_bits<I>(block + 16, piece, 0), four_bits<I>(block + 16, piece, 1));
  }
  static typename I::F4 scale(Rows4 rows, int64_t at, int piece) {
    return I::mul4(halves_at<I>(rows, at), integers<I>(rows, at + 4, six_bit_scale, piece));
  }
  static typename I::F4 min(Rows4 rows, int64_t at, int piece) {
    return negated<I>(I::mul4(halves_at<I>(rows, at + 2), integers<I>(rows, at + 4, six_bit_min, piece)));
  }
};

template <class I>
struct Q5_K : Q4_K<I> {
  static constexpr int kBytes = 176;
  static typename I::I8x32 unpack(const uint8_t* block, int piece) {
    const auto half = [=](int h) {
      return I::bit_or(four_bits<I>(block + 48, piece, h), one_bit<I>(block + 16, piece, h, 4));
    };
    return I::join(half(0), half(1));
  }
};

template <class I>
struct Q6_K {
  static constexpr int kBytes = 210, kPieces = 8;
  static constexpr bool kMin = false, kScaledHalves = true, kMinHalves = false;
  static typename I::I8x32 unpack(const uint8_t* block, int piece) {
    const uint8_t* low = block + piece / 4 * 64 + piece % 2 * 32;
    const auto half = [=](int h) {
      const auto stored = I::load_bytes(low + h * 16);
      const auto four = I::bit_and(I::shift_right(stored, piece % 4 / 2 * 4), I::bytes(0xf));
      const auto two = I::shift_left(two_bits<I>(block + 128, piece, h), 4);
      return I::subtract(I::bit_or(four, two), I::bytes(32));
    };
    return I::join(half(0), half(1));
  }
  static int half_scale(const uint8_t* block, int half) { return static_cast<int8_t>(block[192 + half]); }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) { return halves_at<I>(rows, at + 208); }
};

// Nibbles that index the table of a G4 type.
template <class I, DType type>
struct Grid4 {
  static constexpr int kBytes = 146, kPieces = 8;
  static constexpr bool kMin = false, kScaledHalves = true, kMinHalves = false;
  struct Table {
    uint8_t values[16];
    constexpr Table() : values{} {
      for (size_t i = 0; i < 16; ++i) values[i] = static_cast<uint8_t>(grid_table(type)[i]);
    }
  };
  static constexpr Table kTable{};
  static typename I::I8x32 unpack(const uint8_t* block, int piece) {
    const auto values = I::load_bytes(kTable.values);
    return I::join(I::lookup(values, four_bits<I>(block + 18, piece, 0)),
                   I::lookup(values, four_bits<I>(block + 18, piece, 1)));
  }
  static int half_scale(const uint8_t* block, int half) { return static_cast<int8_t>(block[2 + half]); }
  static typename I::F4 scale(Rows4 rows, int64_t at, int) {
    return I::mul4(halves_at<I>(rows, at), I::splat4(grid_factor(type)));
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
