// A panel in pairs by one token, by SDOT: a vector of codes gives two sums of four columns for each of its rows, which are added
// where a piece ends. Included by panels_i8mm.cpp only.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/pairs/pair_codes.h"

namespace sluice::kernels::cpu {
namespace {

// Where the sums of a pair of rows start: in the first of each row's two.
template <PairKind K, PanelFormat F>
[[gnu::always_inline]] inline int32x4_t start_of_rows(int32_t negated_sum) {
  int64_t start = K.start_bits();
  if constexpr (pair_offset<F>()) start += int64_t{negated_sum} * (1 << F.offset_bits);
  return vreinterpretq_s32_s64(vdupq_n_s64(start));
}

// Four rows of a piece from `lane` on.
template <PanelFormat F>
[[gnu::always_inline]] inline float32x4_t add_four_rows(float32x4_t total, const PairHead& head,
                                                        const uint8_t* piece, int lane,
                                                        const PanelActivations& x,
                                                        const int8x16_t (&columns)[4]) {
  constexpr PairKind K = pair_kind<F>();
  constexpr int kHalves = K.halves ? 2 : 1;
  const uint8_t* codes = piece + F.scale_bytes();
  float32x4_t sums[kHalves];
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    int32x4_t pairs[2];
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const int pair = lane / 2 + p;
      pairs[p] = start_of_rows<K, F>(K.halves ? x.negated_halves[half] : x.negated_sum);
      if (half == 0 || !K.halves) {
        pairs[p] = vdotq_s32(pairs[p], pair_group<F, 0, false>(codes, pair), columns[0]);
        pairs[p] = vdotq_s32(pairs[p], pair_group<F, 1, false>(codes, pair), columns[1]);
      }
      if (half == 1 || !K.halves) {
        pairs[p] = vdotq_s32(pairs[p], pair_group<F, 2, false>(codes, pair), columns[2]);
        pairs[p] = vdotq_s32(pairs[p], pair_group<F, 3, false>(codes, pair), columns[3]);
      }
    }
    sums[half] = pair_float<K>(vpaddq_s32(pairs[0], pairs[1]));
  }
  const PairScales s = scales_of_four<F>(head, piece, lane);
  float32x4_t sum = sums[0];
  if constexpr (K.halves) sum = vfmaq_f32(vmulq_f32(sum, s.half[0]), sums[1], s.half[1]);
  total = vfmaq_f32(total, sum, vmulq_n_f32(s.scale, x.scale));
  if constexpr (K.mins && !K.halves) total = vfmaq_n_f32(total, s.min[0], x.sum);
  if constexpr (K.mins && K.halves) {
    total = vfmaq_n_f32(total, s.min[0], x.half_sums[0]);
    total = vfmaq_n_f32(total, s.min[1], x.half_sums[1]);
  }
  return total;
}

template <PanelFormat F>
void panel_for_one(const PanelGemm& gemm, int64_t row, int64_t token) {
  constexpr int kFours = kPanelRows / 4;
  const uint8_t* super = gemm.panels + row / kPanelRows * F.panel_bytes(gemm.cols);
  const PanelActivations* x = gemm.x + token * (gemm.cols / 32);
  float32x4_t totals[kFours];
#pragma GCC unroll 4
  for (int g = 0; g < kFours; ++g) totals[g] = vdupq_n_f32(0.0f);
  for (int64_t block = 0; block < gemm.cols / 32; block += F.pieces, super += F.super_bytes()) {
    PairHead head;
    read_head<F>(head, super);
    const uint8_t* piece = super + F.head_bytes();
    for (int i = 0; i < F.pieces; ++i, piece += F.piece_bytes(), ++x) {
      int8x16_t columns[4];
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const int8x8_t eight = vld1_s8(x->quants + 8 * c);
        columns[c] = vcombine_s8(eight, eight);
      }
#pragma GCC unroll 4
      for (int g = 0; g < kFours; ++g)
        totals[g] = add_four_rows<F>(totals[g], head, piece, 4 * g, *x, columns);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kFours; ++g) {
    const int64_t first = row + 4 * g, rows = gemm.rows - first;
    if (rows <= 0) return;
    if (gemm.bias != nullptr) totals[g] = vaddq_f32(totals[g], load_rows<PairWords>(gemm.bias + first, rows));
    store_rows<PairWords>(gemm.out + token * gemm.out_stride + first, totals[g], rows);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
