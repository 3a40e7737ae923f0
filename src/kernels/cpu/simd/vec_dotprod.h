// NEON with SDOT: four products per lane and instruction.
#pragma once

#include "kernels/cpu/simd/vec_neon.h"

namespace sluice::kernels::cpu {
namespace {

struct Dotprod : Neon {
  static int32x4_t dot16(int8x16_t a, int8x16_t b) { return vdotq_s32(vdupq_n_s32(0), a, b); }

  template <int N>
  static void dots(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    for (int n = 0; n < N; ++n) {
      const I8x32 token = load_quants(x[n]->quants);
      int32x4_t rows[4];
      for (int r = 0; r < 4; ++r)
        rows[r] = vdotq_s32(dot16(weights[r].low, token.low), weights[r].high, token.high);
      sums[n] = sum_rows(rows);
    }
  }
  template <int N>
  static void scaled_dots(const I8x32 (&weights)[4], const HalfScales& scales,
                          const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    scaled_dots_by<Dotprod, N>(weights, scales, x, sums);
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
