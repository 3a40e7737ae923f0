// SMMLA multiplies eight columns of two rows with those of two tokens into a square of four exact integers. Here: how squares are
// scaled and added, by the arithmetic of gemm.h. Included by panels_i8mm.cpp only.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/pairs/pair_codes.h"

namespace sluice::kernels::cpu {
namespace {

// The scales of two tokens as a square has them: {t0, t1, t0, t1}.
[[gnu::always_inline]] inline float32x4_t token_pair(const float* scales) {
  return vreinterpretq_f32_f64(vld1q_dup_f64(reinterpret_cast<const double*>(scales)));
}

// The scales of two of four rows as a square has them: {r0, r0, r1, r1}.
template <PairKind K>
[[gnu::always_inline]] inline PairScales scales_of_pair(const PairScales& rows, int pair) {
  const auto two = [&](float32x4_t x) __attribute__((always_inline)) {
    return pair == 0 ? vzip1q_f32(x, x) : vzip2q_f32(x, x);
  };
  PairScales s;
  s.scale = two(rows.scale);
  if constexpr (K.halves) {
    s.half[0] = two(rows.half[0]);
    s.half[1] = two(rows.half[1]);
  }
  if constexpr (K.mins) s.min[0] = two(rows.min[0]);
  if constexpr (K.mins && K.halves) s.min[1] = two(rows.min[1]);
  return s;
}

// The integers of a square, before the scales of its rows: those of the first half of a piece, then the second's.
template <PairKind K>
[[gnu::always_inline]] inline float32x4_t half_sum(float32x4_t sum, int32x4_t square, int half,
                                                   float32x4_t half_scale) {
  if constexpr (!K.halves) return pair_float<K>(square);
  return half == 0 ? vmulq_f32(pair_float<K>(square), half_scale)
                   : vfmaq_f32(sum, pair_float<K>(square), half_scale);
}

// Adds the sum of a piece. `s` has the scales of the square's rows.
template <PairKind K>
[[gnu::always_inline]] inline float32x4_t add_square(float32x4_t total, float32x4_t sum, const PairScales& s,
                                                     const ActivationTile& x, int64_t pair) {
  total = vfmaq_f32(total, sum, vmulq_f32(s.scale, token_pair(x.scale + 2 * pair)));
  if constexpr (K.mins && !K.halves) total = vfmaq_f32(total, s.min[0], token_pair(x.sum + 2 * pair));
  if constexpr (K.mins && K.halves) {
    total = vfmaq_f32(total, s.min[0], token_pair(x.half_sums[0] + 2 * pair));
    total = vfmaq_f32(total, s.min[1], token_pair(x.half_sums[1] + 2 * pair));
  }
  return total;
}

// Four rows of two tokens to where they lie: a token's rows are neighbours there.
[[gnu::always_inline]] inline void store_squares(float* to, int64_t stride, float32x4_t low, float32x4_t high,
                                                 const float* bias, int64_t rows, int64_t tokens) {
  float32x4_t a = vuzp1q_f32(low, high), b = vuzp2q_f32(low, high);
  if (bias != nullptr) {
    const float32x4_t added = load_rows<PairWords>(bias, rows);
    a = vaddq_f32(a, added);
    b = vaddq_f32(b, added);
  }
  store_rows<PairWords>(to, a, rows);
  if (tokens > 1) store_rows<PairWords>(to + stride, b, rows);
}

}  // namespace
}  // namespace sluice::kernels::cpu
