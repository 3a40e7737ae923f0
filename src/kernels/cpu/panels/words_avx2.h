// The words of panels with AVX2: four bytes of each of eight rows (P), a sum for each row (S).
#pragma once

#include "kernels/cpu/simd/vec_avx2.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelAvx2 : Avx2 {
  using P = __m256i;
  using S = __m256i;
  static constexpr bool kWideCodes = false;  // pairs of products must fit 16 bits
  static constexpr int kPanelsAtOnce = 1;
  static constexpr int kPanelVectors = 1;  // whose integer sums are held at once
  static P panel_load(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // Left, or right where Count is negative; bits cross bytes, so a mask follows.
  template <int Count>
  static P panel_shift(P a) {
    return Count < 0 ? _mm256_srli_epi16(a, Count < 0 ? -Count : 0)
                     : _mm256_slli_epi16(a, Count < 0 ? 0 : Count);
  }
  static P panel_and(P a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask))); }
  static P panel_or(P a, P b) { return _mm256_or_si256(a, b); }
  static P panel_flip(P a) { return _mm256_xor_si256(a, _mm256_set1_epi8(static_cast<char>(0x80))); }
  static P panel_lookup(const uint8_t (&table)[16], P index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), index);
  }
  static void panel_store(uint8_t* to, P value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static S panel_ints(int32_t value) { return _mm256_set1_epi32(value); }
  static P panel_x(const int8_t* four) {
    int32_t word;
    __builtin_memcpy(&word, four, 4);
    return _mm256_set1_epi32(word);
  }
  // Products of unsigned codes, added up in pairs of columns to 16 bits.
  static P panel_pairs(P codes, P x) { return _mm256_maddubs_epi16(codes, x); }
  static P panel_add_pairs(P a, P b) { return _mm256_add_epi16(a, b); }
  static S panel_widen(S sum, P pairs) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static S panel_dot(S sum, P codes, P x) { return panel_widen(sum, panel_pairs(codes, x)); }
  static S panel_dot_signed(S sum, P weights, P x) { return _mm256_add_epi32(sum, dot32(weights, x)); }
  static F panel_float(S sum) { return _mm256_cvtepi32_ps(sum); }
};

}  // namespace
}  // namespace sluice::kernels::cpu
