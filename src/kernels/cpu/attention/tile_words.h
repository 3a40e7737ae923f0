// Keys and values of one head as bf16 words for matrix tiles. Included by attention_amx.cpp only.
//
// Numbers of f16 and f32 are sums of two bf16: of f16 exactly, of f32 to within 2^-17. BF16 is taken as it is.
#pragma once

#include "kernels/cpu/panels/amx/tile_registers.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kWidestTiled = 640;  // of a row
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileWords = 512;

struct SplitWords {
  __m512i high, low;
};

// What permutes the words of two vectors of floats, or of bf16, into one: upper halves one after the other or by turns, and
// 16 words of each by turns, from the first one on or from the 16th.
struct WordOrder {
  alignas(64) uint16_t upper[32], upper_turns[32], first_turns[32], last_turns[32];

  constexpr WordOrder() : upper(), upper_turns(), first_turns(), last_turns() {
    for (uint16_t i = 0; i < 32; ++i) {
      upper[i] = static_cast<uint16_t>(2 * i + 1);
      upper_turns[i] = static_cast<uint16_t>(i / 2 * 2 + 1 + i % 2 * 32);
      first_turns[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
      last_turns[i] = static_cast<uint16_t>(first_turns[i] + 16);
    }
  }
};
constexpr WordOrder kWordOrder;

inline __m512i in_order(const uint16_t (&order)[32], __m512i a, __m512i b) {
  return _mm512_permutex2var_epi16(a, _mm512_load_si512(order), b);
}

// Each type: 32 columns of a row as they follow each other; two tiles' columns (16 each) of two rows by turns. What lies past
// `left` columns is zero and not read.
template <class W>
struct TiledF16 {
  static constexpr bool kLow = true;
  static constexpr int64_t kBytes = 2;

  static TileF floats(const uint8_t* from, int64_t left) {
    if (left >= 16) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(TileFloats::mask(left), from));
  }
  // Cut off, which leaves three bits that are exact.
  static SplitWords split(TileF a, TileF b, const uint16_t (&order)[32]) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const auto rest = [mask](TileF x) {
      const __m512i bits = _mm512_castps_si512(x);
      return _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_and_si512(bits, mask))));
    };
    return {in_order(order, _mm512_castps_si512(a), _mm512_castps_si512(b)),
            in_order(order, rest(a), rest(b))};
  }
  static SplitWords columns(const uint8_t* row, int64_t at, int64_t left) {
    return split(floats(row + 2 * at, left), floats(row + 2 * at + 32, left - 16), kWordOrder.upper);
  }
  static void pairs(SplitWords (&to)[2], const uint8_t* a, const uint8_t* b, int64_t at, int64_t left) {
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t)
      to[t] = split(floats(a + 2 * at + 32 * t, left - 16 * t), floats(b + 2 * at + 32 * t, left - 16 * t),
                    kWordOrder.upper_turns);
  }
};

template <class W>
struct TiledF32 {
  static constexpr bool kLow = true;
  static constexpr int64_t kBytes = 4;

  static SplitWords split(const TileFloats& two) {
    const __m512i high = W::rounded(two.first, two.second);
    return {high, two.template low<W>(high)};
  }
  static const float* at_column(const uint8_t* row, int64_t at) {
    return reinterpret_cast<const float*>(row) + at;
  }
  static SplitWords columns(const uint8_t* row, int64_t at, int64_t left) {
    return split(TileFloats(at_column(row, at), left));
  }
  static void pairs(SplitWords (&to)[2], const uint8_t* a, const uint8_t* b, int64_t at, int64_t left) {
    const SplitWords first = columns(a, at, left), second = columns(b, at, left);
    to[0] = {in_order(kWordOrder.first_turns, first.high, second.high),
             in_order(kWordOrder.first_turns, first.low, second.low)};
    to[1] = {in_order(kWordOrder.last_turns, first.high, second.high),
             in_order(kWordOrder.last_turns, first.low, second.low)};
  }
};

template <class W>
struct TiledBf16 {
  static constexpr bool kLow = false;
  static constexpr int64_t kBytes = 2;

  static __m512i words(const uint8_t* from, int64_t left) {
    if (left >= 32) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16(left <= 0 ? 0 : (1u << left) - 1, from);
  }
  static SplitWords columns(const uint8_t* row, int64_t at, int64_t left) {
    return {words(row + 2 * at, left), _mm512_setzero_si512()};
  }
  static void pairs(SplitWords (&to)[2], const uint8_t* a, const uint8_t* b, int64_t at, int64_t left) {
    const __m512i first = words(a + 2 * at, left), second = words(b + 2 * at, left);
    to[0].high = in_order(kWordOrder.first_turns, first, second);
    to[1].high = in_order(kWordOrder.last_turns, first, second);
  }
};

// Tiles of one sort of factor: high[i] and low[i], kTileWords apart, for steps of 32 products each.
constexpr int64_t split_words(int64_t tiles) {
  return 2 * tiles * kTileWords;
}

}  // namespace
}  // namespace sluice::kernels::cpu
