// Weights repacked into panels of 16 rows, in one of four layouts. Quads: a vector holds four consecutive elements
// of each of up to 16 rows and takes four activations, broadcast, in one instruction; it serves every instruction set but
// those of the next two. Pairs: a vector holds eight elements of each of two rows, as SMMLA reads them. Words: a piece is a
// matrix tile of bf16, pair of columns after pair, the 16 rows of each side by side. Columns: plain types, column after column,
// the 16 rows of each side by side.
//
// But for columns a panel is a sequence of super-blocks (of `pieces` pieces of 32 columns each):
//   head of the super-block: f16 d[16], f16 dmin[16] (KScales: both; HalfScales: d, and dmin with mins)
//   then, piece after piece:
//     scales of the piece:  Half: f16 d[16], f16 min[16] with mins;  HalfZero: f16 d[16], f16 zero[16], the min being
//                           -d * zero;  TwoHalves: f16 d[2][16], one for each 16 columns;  E8m0: u8 exponent[16];
//                           KScales: u8 scale[16], u8 min[16];  HalfScales: i8 scale[2][16], one for each 16 columns,
//                           with mins u8 {scale: 4, min: 4}[2][16]
//     base codes, Quads: rows of 64 bytes, four for each of the 16 matrix rows. Quad q is columns [4 q, 4 q + 4) of the piece.
//       Nibbles   4 x 64: quad q in the low half of row q, quad q + 4 in the high half
//       TwoBits   2 x 64: quad q in bits 2 (q % 4) of row q / 4
//       Bytes     8 x 64: quad q in row q
//     high bits of the codes, placed above the base's:
//       One       64: quad q in bit q
//       Two   2 x 64: as TwoBits
//     base codes, Pairs: vectors of 16 bytes; pair p is rows 2 p and 2 p + 1, group c columns [8 c, 8 c + 8) of the piece.
//       Nibbles  16 x 16: groups c and c + 2 of pair p in the low and high halves of vector 2 p + c
//       TwoBits   8 x 16: group c in bits 2 c of vector p
//       Bytes    32 x 16: group c in vector 4 p + c
//       One       4 x 16: group c in bit 4 (p % 2) + c of vector p / 2
//       Two       8 x 16: as TwoBits
//       Codes that fill their nibbles or bytes and have an offset are stored less it (signed_in_pairs).
//     Words: 16 x 64: bf16; columns 2 p and 2 p + 1 in row p, four bytes for each of the 16 matrix rows; columns past the end
//       are zeros
// A weight is scale * (code - offset) (+ min). Rows past the end of the matrix are zeros, scales and all.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/float_tables.h"
#include "tensor/grids.h"

namespace sluice::kernels::cpu {

inline constexpr int64_t kPanelRows = 16;

enum class PanelLayout : uint8_t { Quads, Pairs, Words, Columns };

struct PanelFormat {
  enum class Base : uint8_t { Nibbles, TwoBits, Bytes, Words };
  enum class High : uint8_t { None, One, Two };
  enum class Scales : uint8_t { None, Half, HalfZero, TwoHalves, E8m0, KScales, HalfScales };
  enum class Codes : uint8_t {
    Plain,
    Iq4Nl,
    Mxfp4,
    Grid2,
    Grid3x,
    Grid3s,
    Nf4,
    Fp4
  };  // what a code stands for: itself, or a value of a table
  Base base = Base::Nibbles;
  High high = High::None;
  Scales scales = Scales::Half;
  bool mins = false;
  int offset_bits = -1;  // the offset is 1 << offset_bits; -1: none
  Codes codes = Codes::Plain;
  int pieces = 1;
  int shift = 0;  // HalfScales: d is divided by 1 << shift

  constexpr int base_bits() const {
    constexpr int kBits[] = {4, 2, 8, 16};
    return kBits[static_cast<int>(base)];
  }
  constexpr int64_t base_bytes() const { return base_bits() * 64; }
  constexpr int64_t high_bytes() const { return high == High::None ? 0 : high == High::One ? 64 : 128; }
  constexpr int64_t head_bytes() const {
    if (scales == Scales::KScales) return 64;
    return scales == Scales::HalfScales ? (mins ? 64 : 32) : 0;
  }
  constexpr int64_t scale_bytes() const {
    if (scales == Scales::None) return 0;
    if (scales == Scales::Half) return mins ? 64 : 32;
    if (scales == Scales::HalfZero || scales == Scales::TwoHalves) return 64;
    return scales == Scales::E8m0 ? 16 : 32;
  }
  // Of Half scales.
  constexpr float factor() const {
    if (codes == Codes::Nf4) return byte_factor(DType::NF4);
    return codes == Codes::Fp4 ? byte_factor(DType::FP4) : 1.0f;
  }
  constexpr int64_t piece_bytes() const { return scale_bytes() + base_bytes() + high_bytes(); }
  constexpr int64_t super_bytes() const { return head_bytes() + pieces * piece_bytes(); }
  constexpr bool signed_in_pairs() const {
    return offset_bits >= 0 && high == High::None && codes == Codes::Plain && base != Base::TwoBits;
  }
  // Of a panel with `cols` columns.
  constexpr int64_t panel_bytes(int64_t cols) const {
    return (cols + 32 * pieces - 1) / (32 * pieces) * super_bytes();
  }
};

// The types of nibbles with a table and an integer scale for each 16 columns.
constexpr PanelFormat grid_format(DType type, PanelFormat::Codes codes) {
  return {.scales = PanelFormat::Scales::HalfScales,
          .offset_bits = 7,
          .codes = codes,
          .pieces = 8,
          .shift = grid_shift(type)};
}

// Whether panels in words are used where there are matrix tiles of bf16. Quantised types would have to become bf16 at every
// step, also for one token, by vector instructions that hardly overlap with those of tiles: of Q8_0 and Q6_K single answers
// take some 1.6 times as long as with integers.
constexpr bool has_words(DType type) {
  return type == DType::BF16;
}

// Plain types that have panels in columns.
constexpr bool has_columns(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

// Whether the type has panels.
constexpr bool has_panels(DType type, PanelLayout layout) {
  if (layout == PanelLayout::Columns) return has_columns(type);
  return layout == PanelLayout::Words ? has_words(type) : is_block(type) && !is_file_only(type);
}

// In quads or pairs. REQUIRES: is_block(type).
constexpr PanelFormat panel_format(DType type) {
  using F = PanelFormat;
  switch (type) {
    case DType::Q4_0:
      return {.offset_bits = 3};
    case DType::Q4_1:
      return {.mins = true};
    case DType::Q5_0:
      return {.high = F::High::One, .offset_bits = 4};
    case DType::Q5_1:
      return {.high = F::High::One, .mins = true};
    case DType::Q8_0:
      return {.base = F::Base::Bytes, .offset_bits = 7};
    case DType::IQ4_NL:
      return {.offset_bits = 7, .codes = F::Codes::Iq4Nl};
    case DType::NF4:
      return {.offset_bits = 7, .codes = F::Codes::Nf4};
    case DType::FP4:
      return {.offset_bits = 7, .codes = F::Codes::Fp4};
    case DType::MXFP4:
      return {.scales = F::Scales::E8m0, .offset_bits = 4, .codes = F::Codes::Mxfp4};
    case DType::Q4_Z:
      return {.scales = F::Scales::HalfZero, .mins = true};
    case DType::F4_16:
      return {.scales = F::Scales::TwoHalves, .offset_bits = 4, .codes = F::Codes::Mxfp4};
    case DType::G4_NL:
      return grid_format(type, F::Codes::Iq4Nl);
    case DType::G4_2:
      return grid_format(type, F::Codes::Grid2);
    case DType::G4_3X:
      return grid_format(type, F::Codes::Grid3x);
    case DType::G4_3S:
      return grid_format(type, F::Codes::Grid3s);
    case DType::Q2_K:
      return {.base = F::Base::TwoBits, .scales = F::Scales::HalfScales, .mins = true, .pieces = 8};
    case DType::Q3_K:
      return {.base = F::Base::TwoBits,
              .high = F::High::One,
              .scales = F::Scales::HalfScales,
              .offset_bits = 2,
              .pieces = 8};
    case DType::Q4_K:
      return {.scales = F::Scales::KScales, .mins = true, .pieces = 8};
    case DType::Q5_K:
      return {.high = F::High::One, .scales = F::Scales::KScales, .mins = true, .pieces = 8};
    case DType::Q6_K:
      return {.high = F::High::Two, .scales = F::Scales::HalfScales, .offset_bits = 5, .pieces = 8};
    default:
      return {};
  }
}

// Of a row of `pieces` pieces that is taken by chunks of at most `most`: chunks of about the same size, in whole super-blocks.
constexpr int64_t even_chunk(const PanelFormat& format, int64_t pieces, int64_t most) {
  const int64_t chunks = (pieces + most - 1) / most;
  return ((pieces + chunks - 1) / chunks + format.pieces - 1) / format.pieces * format.pieces;
}

inline constexpr PanelFormat kWordsFormat{.base = PanelFormat::Base::Words,
                                          .scales = PanelFormat::Scales::None};

// Of a panel with `cols` columns. REQUIRES: has_panels(type, layout).
constexpr int64_t panel_bytes(DType type, PanelLayout layout, int64_t cols) {
  if (layout == PanelLayout::Columns) return cols * kPanelRows * info(type).block_bytes;
  return (layout == PanelLayout::Words ? kWordsFormat : panel_format(type)).panel_bytes(cols);
}

}  // namespace sluice::kernels::cpu
