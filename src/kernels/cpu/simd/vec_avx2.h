// The vector words of x86 with AVX2, FMA and F16C: 8 floats (F); the four-row and 16-byte words are SSE
// registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

struct Avx2 {
  // -- floats
  using F = __m256;
  using Mask = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kRowTile = 4;
  static constexpr int kTokenTile = 2;
  static constexpr bool kSplit = false;  // no products of bf16 with split activations

  static F set1(float value) { return _mm256_set1_ps(value); }
  static F load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, F value) { _mm256_storeu_ps(to, value); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  // NaN in `a` stays.
  static F min(F a, F b) { return _mm256_min_ps(b, a); }
  static F max(F a, F b) { return _mm256_max_ps(b, a); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static F select(Mask mask, F yes, F no) { return _mm256_blendv_ps(no, yes, mask); }
  static F pow2(F n) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static float reduce_add(F a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float reduce_max(F a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  static __m128i load128(const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static __m128i load64(const uint8_t* from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }
  static F load_f32(const uint8_t* from) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static F load_f16(const uint8_t* from) { return _mm256_cvtph_ps(load128(from)); }
  static F load_bf16(const uint8_t* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(from)), 16));
  }
  static F load_f8(const uint8_t* from) {
    const __m256i bits = _mm256_cvtepu8_epi32(load64(from));
    const __m256i code = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f));
    const F magnitude =
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(code, 20)), _mm256_set1_ps(0x1p120f));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x80)), 24);
    const F value = _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
    const __m256i is_nan = _mm256_cmpeq_epi32(code, _mm256_set1_epi32(0x7f));
    return _mm256_blendv_ps(value, _mm256_set1_ps(__builtin_nanf("")), _mm256_castsi256_ps(is_nan));
  }
  static F load_i8(const uint8_t* from) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(from))); }
  static void store_f16(uint8_t* to, F value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  // -- four rows
  using F4 = __m128;
  using I4 = __m128i;
  static F4 splat4(float value) { return _mm_set1_ps(value); }
  static F4 load4(const float* from) { return _mm_loadu_ps(from); }
  static void store4(float* to, F4 value) { _mm_storeu_ps(to, value); }
  static F4 add4(F4 a, F4 b) { return _mm_add_ps(a, b); }
  static F4 mul4(F4 a, F4 b) { return _mm_mul_ps(a, b); }
  static F4 fma4(F4 a, F4 b, F4 c) { return _mm_fmadd_ps(a, b, c); }
  static F4 to_float4(I4 a) { return _mm_cvtepi32_ps(a); }
  static I4 set4(int32_t a, int32_t b, int32_t c, int32_t d) { return _mm_setr_epi32(a, b, c, d); }
  static F4 halves4(uint64_t bits) { return _mm_cvtph_ps(_mm_cvtsi64_si128(static_cast<int64_t>(bits))); }

  // -- bytes
  using B16 = __m128i;
  static B16 bytes(uint8_t value) { return _mm_set1_epi8(static_cast<char>(value)); }
  static B16 load_bytes(const uint8_t* from) { return load128(from); }
  static B16 bit_and(B16 a, B16 b) { return _mm_and_si128(a, b); }
  static B16 bit_or(B16 a, B16 b) { return _mm_or_si128(a, b); }
  static B16 subtract(B16 a, B16 b) { return _mm_sub_epi8(a, b); }
  static B16 equal(B16 a, B16 b) { return _mm_cmpeq_epi8(a, b); }
  static B16 lookup(B16 table, B16 index) { return _mm_shuffle_epi8(table, index); }
  static B16 shift_right(B16 a, int count) {
    return _mm_and_si128(_mm_srl_epi16(a, _mm_cvtsi32_si128(count)),
                         bytes(static_cast<uint8_t>(0xff >> count)));
  }
  static B16 shift_left(B16 a, int count) {
    return _mm_and_si128(_mm_sll_epi16(a, _mm_cvtsi32_si128(count)),
                         bytes(static_cast<uint8_t>(0xff << count)));
  }
  static B16 spread(uint16_t two) {
    const __m128i index = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return _mm_shuffle_epi8(_mm_cvtsi32_si128(two), index);
  }

  using I8x32 = __m256i;
  static I8x32 join(B16 low, B16 high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
  static I8x32 load_quants(const int8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  // -- products of bytes

  // Eight partial sums, four of each half. The instruction wants one unsigned side: the sign of `a` moves to
  // `b`, whose quants are at least -127. Pairs reach 2 * 128 * 127, which fits 16 bits.
  static __m256i dot32(I8x32 a, I8x32 b) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  static I4 sum_rows(const __m256i (&rows)[4]) {
    const __m256i quarters =
        _mm256_hadd_epi32(_mm256_hadd_epi32(rows[0], rows[1]), _mm256_hadd_epi32(rows[2], rows[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
  }

  template <int N>
  static void dots(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    dots_by<Avx2, N>(weights, x, sums);
  }
  template <int N>
  static void scaled_dots(const I8x32 (&weights)[4], const HalfScales& scales,
                          const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    scaled_dots_by<Avx2, N>(weights, scales, x, sums);
  }

 protected:
  template <class Level, int N>
  static void dots_by(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    for (int n = 0; n < N; ++n) {
      const I8x32 token = load_quants(x[n]->quants);
      __m256i rows[4];
      for (int r = 0; r < 4; ++r) rows[r] = Level::dot32(weights[r], token);
      sums[n] = sum_rows(rows);
    }
  }
  template <class Level, int N>
  static void scaled_dots_by(const I8x32 (&weights)[4], const HalfScales& scales,
                             const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    for (int n = 0; n < N; ++n) {
      const I8x32 token = load_quants(x[n]->quants);
      __m256i rows[4];
      for (int r = 0; r < 4; ++r) {
        const __m256i scale = join(_mm_set1_epi32(scales.low[r]), _mm_set1_epi32(scales.high[r]));
        rows[r] = _mm256_mullo_epi32(Level::dot32(weights[r], token), scale);
      }
      sums[n] = sum_rows(rows);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
