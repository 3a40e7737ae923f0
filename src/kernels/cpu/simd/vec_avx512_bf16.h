// AVX-512 with VDPBF16PS: two products per lane and instruction, of bf16 weights with activations split in two bf16
// each.
#pragma once

#include <bit>

#include "kernels/cpu/simd/vec_avx512_vnni.h"

namespace sluice::kernels::cpu {
namespace {

struct Avx512Bf16 : Avx512Vnni {
  static constexpr bool kSplit = true;

  static __m512bh words_at(const void* from, int64_t count) {
    if (count >= 32) return std::bit_cast<__m512bh>(_mm512_loadu_si512(from));
    const auto mask = static_cast<__mmask32>((1u << count) - 1);
    return std::bit_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, from));
  }

  // out[r][n] = rows[r] · x[n]; each sum takes its elements in order, the high part of a token first.
  template <int N>
  static void split_dots(const uint8_t* const (&rows)[4], const SplitBlock* const (&x)[N], int64_t cols,
                         float (&out)[4][N]) {
    __m512 sums[4][N];
    for (auto& row : sums) {
      for (__m512& sum : row) sum = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < cols; k += 32) {
      __m512bh weights[4];
      for (int r = 0; r < 4; ++r) weights[r] = words_at(rows[r] + 2 * k, cols - k);
      for (int n = 0; n < N; ++n) {
        const __m512bh high = words_at(x[n][k / 32].high, 32);
        const __m512bh low = words_at(x[n][k / 32].low, 32);
        for (int r = 0; r < 4; ++r) {
          sums[r][n] = _mm512_dpbf16_ps(sums[r][n], weights[r], high);
          sums[r][n] = _mm512_dpbf16_ps(sums[r][n], weights[r], low);
        }
      }
    }
    for (int r = 0; r < 4; ++r) {
      for (int n = 0; n < N; ++n) out[r][n] = reduce_add(sums[r][n]);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
