// How codes and scales of a panel (format.h) become vectors in registers. Included by the files panels_NAME.cpp only.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/format.h"

namespace sluice::kernels::cpu {
namespace {

// What the tables of codes hold, plus the offset that makes it positive.
struct CodeTables {
  static constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  static constexpr int8_t kMxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  uint8_t values[16];
  static constexpr int value_of(PanelFormat::Codes codes, int i) {
    const auto at = static_cast<size_t>(i);
    switch (codes) {
      case PanelFormat::Codes::Grid2:
        return grid_table(DType::G4_2)[at];
      case PanelFormat::Codes::Grid3x:
        return grid_table(DType::G4_3X)[at];
      case PanelFormat::Codes::Grid3s:
        return grid_table(DType::G4_3S)[at];
      case PanelFormat::Codes::Nf4:
        return byte_table(DType::NF4)[at];
      case PanelFormat::Codes::Fp4:
        return byte_table(DType::FP4)[at];
      default:
        return codes == PanelFormat::Codes::Iq4Nl ? kIq4Nl[i] : kMxfp4[i];
    }
  }
  constexpr CodeTables(PanelFormat::Codes codes, int offset) : values{} {
    for (int i = 0; i < 16; ++i) values[i] = static_cast<uint8_t>(value_of(codes, i) + offset);
  }
};

// Codes are signed where the level multiplies signed bytes, and those that need all eight bits where its product does not
// take them unsigned; then there is no offset.
template <class I, PanelFormat F>
constexpr bool signed_codes() {
  if constexpr (requires { I::kSignedCodes; }) return F.offset_bits >= 0;
  return F.offset_bits == 7 && !I::kWideCodes;
}

// The largest value that quad_of gives where codes are unsigned.
template <PanelFormat F>
constexpr int largest_code() {
  if constexpr (F.codes == PanelFormat::Codes::Plain) {
    constexpr int kHigh[] = {0, 1, 2};
    return (1 << (F.base_bits() + kHigh[static_cast<int>(F.high)])) - 1;
  } else {
    int largest = 0;
    for (int i = 0; i < 16; ++i) {
      const int value = CodeTables::value_of(F.codes, i) + (1 << F.offset_bits);
      largest = value > largest ? value : largest;
    }
    return largest;
  }
}

// Quads whose pairs of products 16 bits hold the sum of: 1 where the level does not add them up so.
template <class I, PanelFormat F>
constexpr int quads_in_pairs() {
  if constexpr (requires(typename I::P a) { I::panel_add_pairs(a, a); }) {
    if (signed_codes<I, F>()) return 1;
    constexpr int kMost = 0x7fff / (2 * 127 * largest_code<F>());
    return kMost >= 8 ? 8 : kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  }
  return 1;
}

// Quad Q of a piece for the rows of one vector; `codes` is its place in the first row of 64 bytes.
template <class I, PanelFormat F, int Q>
[[gnu::always_inline]] inline typename I::P quad_of(const uint8_t* codes) {
  using Base = PanelFormat::Base;
  using High = PanelFormat::High;
  typename I::P quad;
  if constexpr (F.base == Base::Nibbles) {
    const auto both = I::panel_load(codes + Q % 4 * 64);
    if constexpr (Q < 4) {
      quad = I::panel_and(both, 0xf);
    } else if constexpr (requires { I::panel_high_nibble(both); }) {
      quad = I::panel_high_nibble(both);
    } else {
      quad = I::panel_and(I::template panel_shift<-4>(both), 0xf);
    }
  } else if constexpr (F.base == Base::TwoBits) {
    quad = I::panel_and(I::template panel_shift<Q % 4 * -2>(I::panel_load(codes + Q / 4 * 64)), 3);
  } else {
    quad = I::panel_load(codes + Q * 64);
    if constexpr (signed_codes<I, F>()) quad = I::panel_flip(quad);
  }
  if constexpr (F.high == High::One) {
    constexpr int kBits = F.base_bits();
    const auto high = I::template panel_shift<kBits - Q>(I::panel_load(codes + F.base_bytes()));
    quad = I::panel_or(quad, I::panel_and(high, 1 << kBits));
  } else if constexpr (F.high == High::Two) {
    const auto high =
        I::template panel_shift<4 - Q % 4 * 2>(I::panel_load(codes + F.base_bytes() + Q / 4 * 64));
    quad = I::panel_or(quad, I::panel_and(high, 0x30));
  }
  if constexpr (F.codes != PanelFormat::Codes::Plain) {
    static constexpr CodeTables kTable(F.codes, signed_codes<I, F>() ? 0 : 1 << F.offset_bits);
    quad = I::panel_lookup(kTable.values, quad);
  } else if constexpr (signed_codes<I, F>() && F.base != Base::Bytes) {
    quad = I::panel_subtract(quad, 1 << F.offset_bits);
  }
  return quad;
}

// Scales of one vector's rows in a piece, as floats.
template <class I>
struct PieceScales {
  typename I::F scale;
  typename I::F half[2];  // HalfScales: integer scales of the two halves
  typename I::F min[2];   // of the piece, or of its two halves
};

// kWidth bytes, each shifted right and cut to four bits, as floats.
template <class I>
[[gnu::always_inline]] inline typename I::F four_bits_of(const uint8_t* from, int shift) {
  uint8_t bytes[I::kWidth];
  for (int i = 0; i < I::kWidth; ++i) bytes[i] = static_cast<uint8_t>((from[i] >> shift) & 0xf);
  return I::load_i8(bytes);
}

template <class I>
[[gnu::always_inline]] inline typename I::F half_e8m0(const uint8_t* from) {
  float scales[I::kWidth];
  for (int i = 0; i < I::kWidth; ++i) {
    const uint32_t exponent = from[i];
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
    __builtin_memcpy(&scales[i], &bits, 4);
  }
  return I::load(scales);
}

// `lane` is the vector's first row in the panel.
template <class I, PanelFormat F>
[[gnu::always_inline]] inline PieceScales<I> scales_of(const uint8_t* head, const uint8_t* piece, int lane) {
  using Scales = PanelFormat::Scales;
  PieceScales<I> s;
  [[maybe_unused]] const auto minus = I::set1(-1.0f);
  if constexpr (F.scales == Scales::Half) {
    s.scale = I::load_f16(piece + 2 * lane);
    if constexpr (F.factor() != 1.0f) s.scale = I::mul(s.scale, I::set1(F.factor()));
    if constexpr (F.mins) s.min[0] = I::load_f16(piece + 32 + 2 * lane);
  } else if constexpr (F.scales == Scales::HalfZero) {
    s.scale = I::load_f16(piece + 2 * lane);
    s.min[0] = I::mul(I::mul(s.scale, I::load_f16(piece + 32 + 2 * lane)), minus);
  } else if constexpr (F.scales == Scales::TwoHalves) {
    s.scale = I::set1(1.0f);
    for (int h = 0; h < 2; ++h) s.half[h] = I::load_f16(piece + 32 * h + 2 * lane);
  } else if constexpr (F.scales == Scales::E8m0) {
    s.scale = half_e8m0<I>(piece + lane);
  } else if constexpr (F.scales == Scales::KScales) {
    s.scale = I::mul(I::load_f16(head + 2 * lane), I::load_i8(piece + lane));
    s.min[0] = I::mul(I::mul(I::load_f16(head + 32 + 2 * lane), I::load_i8(piece + 16 + lane)), minus);
  } else {
    s.scale = I::load_f16(head + 2 * lane);
    if constexpr (F.shift > 0) s.scale = I::mul(s.scale, I::set1(1.0f / (1 << F.shift)));
    for (int h = 0; h < 2; ++h) {
      if constexpr (F.mins) {
        s.half[h] = four_bits_of<I>(piece + 16 * h + lane, 0);
        s.min[h] = I::mul(
            I::mul(I::load_f16(head + 32 + 2 * lane), four_bits_of<I>(piece + 16 * h + lane, 4)), minus);
      } else {
        s.half[h] = I::load_i8(piece + 16 * h + lane);
      }
    }
  }
  return s;
}

}  // namespace
}  // namespace sluice::kernels::cpu
