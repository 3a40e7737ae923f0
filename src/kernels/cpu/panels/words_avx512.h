// The words of panels with AVX-512: four bytes of each of sixteen rows (P), a sum for each row (S).
#pragma once

#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {
namespace {

// Those that multiply no bytes, over the words of `Level`.
template <class Level>
struct PanelWords512 : Level {
  using F = typename Level::F;
  using P = __m512i;
  using S = __m512i;
  static constexpr int kPanelsAtOnce = 2;
  static constexpr int kPanelVectors = 2;
  static P panel_load(const uint8_t* from) { return _mm512_loadu_si512(from); }
  template <int Count>
  static P panel_shift(P a) {
    return Count < 0 ? _mm512_srli_epi16(a, Count < 0 ? -Count : 0)
                     : _mm512_slli_epi16(a, Count < 0 ? 0 : Count);
  }
  static P panel_and(P a, int mask) { return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask))); }
  static P panel_or(P a, P b) { return _mm512_or_si512(a, b); }
  static P panel_lookup(const uint8_t (&table)[16], P index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(Level::load128(table)), index);
  }
  static P panel_subtract(P a, int value) {
    return _mm512_sub_epi8(a, _mm512_set1_epi8(static_cast<char>(value)));
  }
  static P panel_flip(P a) { return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(0x80))); }
  static void panel_store(uint8_t* to, P value) { _mm512_storeu_si512(to, value); }
  static S panel_ints(int32_t value) { return _mm512_set1_epi32(value); }
  static S panel_shifted_ints(const int32_t& value, int bits) {
    return _mm512_slli_epi32(_mm512_set1_epi32(value), static_cast<unsigned>(bits));
  }
  static P panel_x(const int8_t* four) {
    int32_t word;
    __builtin_memcpy(&word, four, 4);
    return _mm512_set1_epi32(word);
  }
  static F panel_float(S sum) { return _mm512_cvtepi32_ps(sum); }

  // Sixteen activations times `inverse`, rounded to the nearest even, as bytes; gives their sum.
  static int round_to_bytes(int8_t* out, const float* x, F inverse) {
    const __m512i quants = _mm512_cvtps_epi32(Level::round(Level::mul(Level::load(x), inverse)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(quants));
    return _mm512_reduce_add_epi32(quants);
  }
};

struct PanelAvx512 : PanelWords512<Avx512> {
  static constexpr bool kWideCodes = false;  // pairs of products must fit 16 bits
  static constexpr int64_t kFewTokens = 8;
  // Products of unsigned codes, added up in pairs of columns to 16 bits.
  static P panel_pairs(P codes, P x) { return _mm512_maddubs_epi16(codes, x); }
  static P panel_add_pairs(P a, P b) { return _mm512_add_epi16(a, b); }
  static S panel_widen(S sum, P pairs) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  static S panel_dot(S sum, P codes, P x) { return panel_widen(sum, panel_pairs(codes, x)); }
  // One side is unsigned: the sign of a weight moves to its activation, which is at least -127. Pairs reach 2 * 128 * 127, which
  // fits 16 bits.
  static S panel_dot_signed(S sum, P weights, P x) {
    const P turned = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(weights), _mm512_setzero_si512(), x);
    return panel_dot(sum, _mm512_abs_epi8(weights), turned);
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
