// Softmax of scores by powers of two, for levels with AVX-512: exp(x) = 2^(x log2 e). Included by attention_amx.cpp only.
#pragma once

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/panels/amx/tile_registers.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {
namespace {

// 2^x within 2^-22; 0 where x is less than -100, NaN of NaN. Smaller weights would add nothing, and become numbers so small that
// every instruction which reads them takes a hundred times as long.
inline __m512 power_of_two(__m512 x) {
  const __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-100.0f), _CMP_NLT_UQ);
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 fraction = _mm512_sub_ps(x, whole);
  constexpr float kTerms[] = {1.33999309e-3f, 9.61848907e-3f, 5.55032864e-2f,
                              2.40226462e-1f, 6.93147182e-1f, 1.0f};
  __m512 sum = _mm512_set1_ps(1.53458124e-4f);
  for (const float term : kTerms) sum = _mm512_fmadd_ps(sum, fraction, _mm512_set1_ps(term));
  return _mm512_maskz_scalef_ps(counts, sum, whole);
}

// A row's maximum in two vectors; NaN does not count.
inline float row_maximum(const float* values, int64_t count) {
  __m512 even = _mm512_set1_ps(-__builtin_inff()), odd = even;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    even = Avx512::max(even, _mm512_loadu_ps(values + i));
    odd = Avx512::max(odd, _mm512_loadu_ps(values + i + 16));
  }
  for (; i < count; i += 16) {
    const __mmask16 mask = TileFloats::mask(count - i);
    even = Avx512::max(even, _mm512_mask_loadu_ps(even, mask, values + i));
  }
  return Avx512::reduce_max(Avx512::max(even, odd));
}

// As softmax of attention.h.
inline SoftmaxPart softmax_by_powers(float* scores, int64_t count, const ScoreRule& rule, int64_t distance) {
  constexpr float kLog2E = 1.44269504088896341f;
  const bool plain = rule.softcap == 0 && rule.slope == 0 && rule.scale > 0;
  if (!plain) make_logits<Avx512>(scores, count, rule, distance);
  const float scale = plain ? rule.scale : 1.0f;
  const float largest = row_maximum(scores, count);
  const __m512 factor = _mm512_set1_ps(scale * kLog2E), most = _mm512_set1_ps(largest * (scale * kLog2E));
  __m512 even = _mm512_setzero_ps(), odd = even;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512 a = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(scores + i), factor, most));
    const __m512 b = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(scores + i + 16), factor, most));
    _mm512_storeu_ps(scores + i, a);
    _mm512_storeu_ps(scores + i + 16, b);
    even = _mm512_add_ps(even, a);
    odd = _mm512_add_ps(odd, b);
  }
  for (; i < count; i += 16) {
    const __mmask16 mask = TileFloats::mask(count - i);
    const __m512 score = _mm512_maskz_loadu_ps(mask, scores + i);
    const __m512 power = _mm512_maskz_mov_ps(mask, power_of_two(_mm512_fmsub_ps(score, factor, most)));
    _mm512_mask_storeu_ps(scores + i, mask, power);
    even = _mm512_add_ps(even, power);
  }
  return {largest * scale, Avx512::reduce_add(_mm512_add_ps(even, odd))};
}

}  // namespace
}  // namespace sluice::kernels::cpu
