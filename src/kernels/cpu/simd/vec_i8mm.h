// NEON with SMMLA: two rows by two tokens, eight products per lane and instruction. A token without a partner
// takes SDOT, which costs the same; integer sums are exact, so both give the same result.
#pragma once

#include "kernels/cpu/simd/vec_dotprod.h"

namespace sluice::kernels::cpu {
namespace {

struct I8mm : Dotprod {
  // 32 elements of two vectors as four operands {8 of a, 8 of b}.
  struct Pair {
    int8x16_t part[4];
  };
  static Pair pair_of(I8x32 a, I8x32 b) {
    const auto low = [](int8x16_t x, int8x16_t y) {
      return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(x), vreinterpretq_s64_s8(y)));
    };
    const auto high = [](int8x16_t x, int8x16_t y) {
      return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(x), vreinterpretq_s64_s8(y)));
    };
    return {{low(a.low, b.low), high(a.low, b.low), low(a.high, b.high), high(a.high, b.high)}};
  }
  static Pair pair_of(const ActivationBlock* a, const ActivationBlock* b) {
    return pair_of(load_quants(a->quants), load_quants(b->quants));
  }

  template <int N>
  static void dots(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    if constexpr (N % 2 == 1) {
      Dotprod::dots<N>(weights, x, sums);
    } else {
      const Pair rows[2] = {pair_of(weights[0], weights[1]), pair_of(weights[2], weights[3])};
      for (int n = 0; n < N; n += 2) {
        const Pair tokens = pair_of(x[n], x[n + 1]);
        int32x4_t both[2];  // {row, token}: 00 01 10 11
        for (int r = 0; r < 2; ++r) {
          const int32x4_t even = vmmlaq_s32(vdupq_n_s32(0), rows[r].part[0], tokens.part[0]);
          const int32x4_t odd = vmmlaq_s32(vdupq_n_s32(0), rows[r].part[1], tokens.part[1]);
          both[r] = vaddq_s32(vmmlaq_s32(even, rows[r].part[2], tokens.part[2]),
                              vmmlaq_s32(odd, rows[r].part[3], tokens.part[3]));
        }
        sums[n] = vuzp1q_s32(both[0], both[1]);
        sums[n + 1] = vuzp2q_s32(both[0], both[1]);
      }
    }
  }

  template <int N>
  static void scaled_dots(const I8x32 (&weights)[4], const HalfScales& scales,
                          const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    if constexpr (N % 2 == 1) {
      Dotprod::scaled_dots<N>(weights, scales, x, sums);
    } else {
      const Pair rows[2] = {pair_of(weights[0], weights[1]), pair_of(weights[2], weights[3])};
      const int32x4_t low = vld1q_s32(scales.low);
      const int32x4_t high = vld1q_s32(scales.high);
      const int32x4_t lows[2] = {vzip1q_s32(low, low), vzip2q_s32(low, low)};
      const int32x4_t highs[2] = {vzip1q_s32(high, high), vzip2q_s32(high, high)};
      for (int n = 0; n < N; n += 2) {
        const Pair tokens = pair_of(x[n], x[n + 1]);
        int32x4_t both[2];
        for (int r = 0; r < 2; ++r) {
          const int32x4_t first = vmmlaq_s32(vmmlaq_s32(vdupq_n_s32(0), rows[r].part[0], tokens.part[0]),
                                             rows[r].part[1], tokens.part[1]);
          const int32x4_t second = vmmlaq_s32(vmmlaq_s32(vdupq_n_s32(0), rows[r].part[2], tokens.part[2]),
                                              rows[r].part[3], tokens.part[3]);
          both[r] = vmlaq_s32(vmulq_s32(first, lows[r]), second, highs[r]);
        }
        sums[n] = vuzp1q_s32(both[0], both[1]);
        sums[n + 1] = vuzp2q_s32(both[0], both[1]);
      }
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
