// The vector words of x86 with AVX-512 (F, BW, VL, DQ): 16 floats. Products of bytes stay 32 wide, one block
// of a weight at a time; VNNI does them in one instruction.
#pragma once

#include "kernels/cpu/simd/vec_avx2.h"

namespace sluice::kernels::cpu {
namespace {

struct Avx512 : Avx2 {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;
  static constexpr int kRowTile = 4;
  static constexpr int kTokenTile = 4;

  static F set1(float value) { return _mm512_set1_ps(value); }
  static F load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, F value) { _mm512_storeu_ps(to, value); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(b, a); }
  static F max(F a, F b) { return _mm512_max_ps(b, a); }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static F select(Mask mask, F yes, F no) { return _mm512_mask_blend_ps(mask, no, yes); }
  static F pow2(F n) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  static float reduce_add(F a) {
    return Avx2::reduce_add(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
  }
  static float reduce_max(F a) {
    return Avx2::reduce_max(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
  }

  // Lane r: the sum of the lanes of m[r], those 8 apart first, then 4, 2 and 1. Halves of two rows are added at a time, so that
  // rows pair up 8, 4, 2 and 1 apart; the order in which they come out is mended by the order in which they go in.
  static F sums_of_rows(const F (&m)[16]) {
    constexpr int kOrder[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
    F half[8], quarter[4], pair[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const F a = m[kOrder[i]], b = m[kOrder[i + 8]];
      half[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      quarter[i] = _mm512_add_ps(_mm512_shuffle_f32x4(half[i], half[i + 4], 0x88),
                                 _mm512_shuffle_f32x4(half[i], half[i + 4], 0xdd));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
      pair[i] = _mm512_add_ps(_mm512_shuffle_ps(quarter[i], quarter[i + 2], 0x44),
                              _mm512_shuffle_ps(quarter[i], quarter[i + 2], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(pair[0], pair[1], 0x88),
                         _mm512_shuffle_ps(pair[0], pair[1], 0xdd));
  }

  // Element [i][j] to [j][i].
  static void transpose(F (&m)[16]) {
    F pairs[16], quads[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_ps(m[i], m[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_ps(m[i], m[i + 1]);
    }
    const auto wide = [](F a) { return _mm512_castps_pd(a); };
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(wide(pairs[i + j]), wide(pairs[i + 2 + j])));
        quads[i + 2 * j + 1] =
            _mm512_castpd_ps(_mm512_unpackhi_pd(wide(pairs[i + j]), wide(pairs[i + 2 + j])));
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {  // quads[4 a + j], 128-bit lane b: columns 4 b + j of rows 4 a to 4 a + 3
      const F low = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88);
      const F low_odd = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);
      const F high = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);
      const F high_odd = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
      m[j] = _mm512_shuffle_f32x4(low, high, 0x88);
      m[8 + j] = _mm512_shuffle_f32x4(low, high, 0xdd);
      m[4 + j] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
      m[12 + j] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd);
    }
  }

  static __m256i load256(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static F load_f32(const uint8_t* from) {
    return _mm512_castsi512_ps(_mm512_loadu_si512(from));
  }
  static F load_f16(const uint8_t* from) {
    return _mm512_cvtph_ps(load256(from));
  }
  static F load_bf16(const uint8_t* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(from)), 16));
  }
  static F load_f8(const uint8_t* from) {
    const __m512i bits = _mm512_cvtepu8_epi32(load128(from));
    const __m512i code = _mm512_and_si512(bits, _mm512_set1_epi32(0x7f));
    const F magnitude =
        _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(code, 20)), _mm512_set1_ps(0x1p120f));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x80)), 24);
    const F value = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude), sign));
    const Mask is_nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(0x7f));
    return _mm512_mask_blend_ps(is_nan, value, _mm512_set1_ps(__builtin_nanf("")));
  }
  static F load_i8(const uint8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(from)));
  }
  static void store_f16(uint8_t* to, F value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
