// NEON with BFMMLA: two rows by two tokens, four products per lane and instruction, of bf16 weights with activations
// split in two bf16 each.
#pragma once

#include "kernels/cpu/simd/vec_i8mm.h"

namespace sluice::kernels::cpu {
namespace {

struct Bf16 : I8mm {
  static constexpr bool kSplit = true;

  struct Halves {  // eight elements of two vectors: four of each, then the other four of each
    bfloat16x8_t first;
    bfloat16x8_t second;
  };
  static Halves halves_of(uint16x8_t a, uint16x8_t b) {
    const uint64x2_t x = vreinterpretq_u64_u16(a);
    const uint64x2_t y = vreinterpretq_u64_u16(b);
    return {vreinterpretq_bf16_u64(vzip1q_u64(x, y)), vreinterpretq_bf16_u64(vzip2q_u64(x, y))};
  }
  static uint16x8_t eight_at(const uint8_t* from, int64_t count) {
    if (count >= 8) return vreinterpretq_u16_u8(vld1q_u8(from));
    uint8_t padded[16] = {};
    if (count > 0) __builtin_memcpy(padded, from, static_cast<size_t>(2 * count));
    return vreinterpretq_u16_u8(vld1q_u8(padded));
  }

  // out[r][n] = rows[r] · x[n]. N is even; each sum takes its elements in order, the high part of a token first.
  template <int N>
  static void split_dots(const uint8_t* const (&rows)[4], const SplitBlock* const (&x)[N], int64_t cols,
                         float (&out)[4][N]) {
    float32x4_t sums[2][N / 2];  // {row, token}: 00 01 10 11
    for (auto& row : sums) {
      for (float32x4_t& sum : row) sum = vdupq_n_f32(0);
    }
    for (int64_t k = 0; k < cols; k += 8) {
      Halves weights[2];
      for (int r = 0; r < 2; ++r) {
        weights[r] =
            halves_of(eight_at(rows[2 * r] + 2 * k, cols - k), eight_at(rows[2 * r + 1] + 2 * k, cols - k));
      }
      for (int n = 0; n < N / 2; ++n) {
        const SplitBlock& a = x[2 * n][k / 32];
        const SplitBlock& b = x[2 * n + 1][k / 32];
        const Halves high = halves_of(vld1q_u16(a.high + k % 32), vld1q_u16(b.high + k % 32));
        const Halves low = halves_of(vld1q_u16(a.low + k % 32), vld1q_u16(b.low + k % 32));
        for (int r = 0; r < 2; ++r) {
          sums[r][n] = vbfmmlaq_f32(sums[r][n], weights[r].first, high.first);
          sums[r][n] = vbfmmlaq_f32(sums[r][n], weights[r].second, high.second);
          sums[r][n] = vbfmmlaq_f32(sums[r][n], weights[r].first, low.first);
          sums[r][n] = vbfmmlaq_f32(sums[r][n], weights[r].second, low.second);
        }
      }
    }
    for (int r = 0; r < 4; ++r) {
      for (int n = 0; n < N; ++n) out[r][n] = sums[r / 2][n / 2][r % 2 * 2 + n % 2];
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
