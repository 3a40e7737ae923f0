// AVX-512 on machines and emulators that have AVX2 only, for tests of the levels that need it: SIMDe's functions under the
// names of the instructions, and here those that it lacks, half by half. Comes first in the include path of those levels
// where SLUICE_EMULATE_AVX512 is on; the compiler's own header is read before its names are taken.
#pragma once

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cstdint>

namespace sluice_emulated {

template <class Half>
struct Halves {
  Half low, high;
};

template <class Half, class Whole>
Halves<Half> split(Whole whole) {
  static_assert(sizeof(Whole) == sizeof(Halves<Half>));
  Halves<Half> halves;
  __builtin_memcpy(&halves, &whole, sizeof(halves));
  return halves;
}

template <class Whole, class Half>
Whole join(Half low, Half high) {
  const Halves<Half> halves = {low, high};
  static_assert(sizeof(Whole) == sizeof(halves));
  Whole whole;
  __builtin_memcpy(&whole, &halves, sizeof(whole));
  return whole;
}

inline __m512i cvtps_epi32(__m512 a) {
  const auto [low, high] = split<__m256>(a);
  return join<__m512i>(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
}

inline __m512 cvtepi32_ps(__m512i a) {
  const auto [low, high] = split<__m256i>(a);
  return join<__m512>(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high));
}

inline __m512i cvtepi8_epi32(__m128i a) {
  return join<__m512i>(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}

inline __m512i cvtepu8_epi32(__m128i a) {
  return join<__m512i>(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}

inline __m512i cvtepu16_epi32(__m256i a) {
  const auto [low, high] = split<__m128i>(a);
  return join<__m512i>(_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high));
}

inline __m512 cvtph_ps(__m256i a) {
  const auto [low, high] = split<__m128i>(a);
  return join<__m512>(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high));
}

template <int kRounding>
__m256i cvtps_ph(__m512 a) {
  const auto [low, high] = split<__m256>(a);
  return join<__m256i>(_mm256_cvtps_ph(low, kRounding), _mm256_cvtps_ph(high, kRounding));
}

template <int kHalf>
__m256 extractf32x8_ps(__m512 a) {
  const auto [low, high] = split<__m256>(a);
  return kHalf == 0 ? low : high;
}

// The low byte of each.
inline __m128i cvtepi32_epi8(__m512i a) {
  int32_t words[16];
  uint8_t bytes[16];
  __builtin_memcpy(words, &a, sizeof(words));
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(words[i]);
  __m128i out;
  __builtin_memcpy(&out, bytes, sizeof(out));
  return out;
}

// Elements that the mask leaves out are not read.
inline __m512i maskz_loadu_epi16(uint32_t mask, const void* from) {
  uint16_t words[32] = {};
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1u) != 0)
      __builtin_memcpy(&words[i], static_cast<const uint16_t*>(from) + i, sizeof(uint16_t));
  __m512i whole;
  __builtin_memcpy(&whole, words, sizeof(whole));
  return whole;
}

// Two quarters of a, then two of b, by two bits of the selection each.
template <int Selection>
inline __m512 shuffle_f32x4(__m512 a, __m512 b) {
  __m128 from[2][4], to[4];
  __builtin_memcpy(from[0], &a, sizeof a);
  __builtin_memcpy(from[1], &b, sizeof b);
  for (int i = 0; i < 4; ++i) to[i] = from[i / 2][(Selection >> (2 * i)) & 3];
  __m512 whole;
  __builtin_memcpy(&whole, to, sizeof whole);
  return whole;
}

}  // namespace sluice_emulated

#define _mm512_cvtps_epi32(a) sluice_emulated::cvtps_epi32(a)
#define _mm512_cvtepi32_ps(a) sluice_emulated::cvtepi32_ps(a)
#define _mm512_cvtepi32_epi8(a) sluice_emulated::cvtepi32_epi8(a)
#define _mm512_cvtepi8_epi32(a) sluice_emulated::cvtepi8_epi32(a)
#define _mm512_cvtepu8_epi32(a) sluice_emulated::cvtepu8_epi32(a)
#define _mm512_cvtepu16_epi32(a) sluice_emulated::cvtepu16_epi32(a)
#define _mm512_cvtph_ps(a) sluice_emulated::cvtph_ps(a)
#define _mm512_cvtps_ph(a, rounding) sluice_emulated::cvtps_ph<(rounding)>(a)
#define _mm512_extractf32x8_ps(a, half) sluice_emulated::extractf32x8_ps<(half)>(a)
#define _mm512_maskz_loadu_epi16(mask, from) sluice_emulated::maskz_loadu_epi16(mask, from)
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, selection) sluice_emulated::shuffle_f32x4<(selection)>(a, b)
