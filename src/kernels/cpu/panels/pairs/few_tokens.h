// Panels in pairs by two to eight tokens: codes are unpacked in registers, once for all tokens, piece after piece, as memory gives
// them. Included by panels_i8mm.cpp only.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/pairs/squares.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kFewPairTokens = 8;

// Group C of two pairs of rows, from `pair` on, by T pairs of tokens.
template <PanelFormat F, int C, int T>
[[gnu::always_inline]] inline void add_group(int32x4_t (&squares)[2][T], const uint8_t* codes, int pair,
                                             const int8_t* quants) {
  const int8x16_t first = pair_group<F, C, true>(codes, pair);
  const int8x16_t second = pair_group<F, C, true>(codes, pair + 1);
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    const int8x16_t tokens = vld1q_s8(quants + t * 64 + C * 16);
    squares[0][t] = vmmlaq_s32(squares[0][t], first, tokens);
    squares[1][t] = vmmlaq_s32(squares[1][t], second, tokens);
  }
}

// Two pairs of rows of a piece, from row `lane` on, by T pairs of tokens; their sums are those from `at` on.
template <PanelFormat F, int R, int T>
[[gnu::always_inline]] inline void add_stored_squares(float32x4_t (&totals)[R][T], int at,
                                                      const PairHead& head, const uint8_t* piece, int lane,
                                                      const ActivationTile& x) {
  constexpr PairKind K = pair_kind<F>();
  constexpr int kHalves = K.halves ? 2 : 1;
  const uint8_t* codes = piece + F.scale_bytes();
  const int8_t* quants = &x.quants[0][0];
  const PairScales rows = scales_of_four<F>(head, piece, lane);
  float32x4_t sums[2][T];
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    int32x4_t squares[2][T];
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) squares[r][t] = vdupq_n_s32(K.start_bits());
    }
    if (half == 0 || !K.halves) {
      add_group<F, 0, T>(squares, codes, lane / 2, quants);
      add_group<F, 1, T>(squares, codes, lane / 2, quants);
    }
    if (half == 1 || !K.halves) {
      add_group<F, 2, T>(squares, codes, lane / 2, quants);
      add_group<F, 3, T>(squares, codes, lane / 2, quants);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      const PairScales s = scales_of_pair<K>(rows, r);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) sums[r][t] = half_sum<K>(sums[r][t], squares[r][t], half, s.half[half]);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r) {
    const PairScales s = scales_of_pair<K>(rows, r);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) totals[at + r][t] = add_square<K>(totals[at + r][t], sums[r][t], s, x, t);
  }
}

// R pairs of a panel's rows, from row `row` on, by T pairs of tokens, the last perhaps of one.
template <PanelFormat F, int R, int T>
void rows_for_few(const PanelGemm& gemm, int64_t row) {
  const uint8_t* super = gemm.panels + row / kPanelRows * F.panel_bytes(gemm.cols);
  const int first_lane = static_cast<int>(row % kPanelRows);
  float32x4_t totals[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) totals[r][t] = vdupq_n_f32(0.0f);
  }
  const ActivationTile* x = gemm.tiles;
  for (int64_t block = 0; block < gemm.cols / 32; block += F.pieces, super += F.super_bytes()) {
    PairHead head;
    read_head<F>(head, super);
    const uint8_t* piece = super + F.head_bytes();
    for (int i = 0; i < F.pieces; ++i, piece += F.piece_bytes(), ++x) {
#pragma GCC unroll 4
      for (int r = 0; r < R; r += 2)
        add_stored_squares<F, R, T>(totals, r, head, piece, first_lane + 2 * r, *x);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r += 2) {
    const int64_t first = row + 2 * r, rows = gemm.rows - first;
    if (rows <= 0) return;
    const float* bias = gemm.bias == nullptr ? nullptr : gemm.bias + first;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t)
      store_squares(gemm.out + 2 * t * gemm.out_stride + first, gemm.out_stride, totals[r][t],
                    totals[r + 1][t], bias, rows, gemm.tokens - 2 * t);
  }
}

// As many rows at a time as leave sums and codes in registers. A panel's second reading finds it in a cache.
template <PanelFormat F, int T>
void panels_for_few(const PanelGemm& gemm) {
  constexpr int R = T <= 2 ? 8 : 4;
  for (int64_t row = 0; row < gemm.rows; row += 2 * R) rows_for_few<F, R, T>(gemm, row);
}

}  // namespace
}  // namespace sluice::kernels::cpu
