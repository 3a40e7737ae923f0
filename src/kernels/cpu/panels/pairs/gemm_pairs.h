// GEMMs over panels in pairs (format.h) by SMMLA, and by SDOT for one token; results have the bits of every other level.
// Included by panels_i8mm.cpp only.
//
// Up to eight tokens: codes are unpacked in registers (one_token.h, few_tokens.h). More: a panel is taken by chunks of its columns,
// which are unpacked into the first cache and multiplied with all tokens; eight rows by four or eight tokens stay in registers. Either
// way a panel is read from memory once for all tokens of a call.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/pairs/few_tokens.h"
#include "kernels/cpu/panels/pairs/one_token.h"
#include "kernels/cpu/panels/pairs/squares.h"

namespace sluice::kernels::cpu {
namespace {

// Most pieces of a chunk: an unpacked panel and a few tokens' activations fit the first cache, all tokens' activations of the
// chunk the second.
constexpr int64_t kPairPieces = 24;

// An unpacked piece: [pair of rows][8 columns][16 bytes], then for each scale [pair of rows]{s0, s0, s1, s1}.
constexpr int64_t kPairCodes = 4 * 16;
constexpr int64_t kPieceCodes = kPanelRows / 2 * kPairCodes;
constexpr int64_t kScaleBytes = kPanelRows / 2 * 16;
constexpr int64_t pair_bytes(PairKind kind) {
  return kPieceCodes + kScaleBytes * kind.vectors();
}

inline void store_pairs(uint8_t* to, float32x4_t scales) {
  vst1q_f32(reinterpret_cast<float*>(to), vzip1q_f32(scales, scales));
  vst1q_f32(reinterpret_cast<float*>(to + 16), vzip2q_f32(scales, scales));
}

template <PanelFormat F>
void unpack_pairs(uint8_t* to, const uint8_t* panel, const Chunk& chunk) {
  constexpr PairKind K = pair_kind<F>();
  PairHead head;
  for (int64_t i = chunk.first; i < chunk.first + chunk.count; ++i, to += pair_bytes(K)) {
    const uint8_t* super = panel + i / F.pieces * F.super_bytes();
    const uint8_t* piece = super + F.head_bytes() + i % F.pieces * F.piece_bytes();
    if (i % F.pieces == 0) read_head<F>(head, super);
#pragma GCC unroll 8
    for (int pair = 0; pair < kPanelRows / 2; ++pair) {
      const auto store = [&]<int C>() __attribute__((always_inline)) {
        vst1q_s8(reinterpret_cast<int8_t*>(to + pair * kPairCodes + C * 16),
                 pair_group<F, C, true>(piece + F.scale_bytes(), pair));
      };
      store.template operator()<0>();
      store.template operator()<1>();
      store.template operator()<2>();
      store.template operator()<3>();
    }
#pragma GCC unroll 4
    for (int lane = 0; lane < kPanelRows; lane += 4) {
      const PairScales s = scales_of_four<F>(head, piece, lane);
      uint8_t* scales = to + kPieceCodes + lane * 8;
      const auto next = [&](float32x4_t values) __attribute__((always_inline)) {
        store_pairs(scales, values);
        scales += kScaleBytes;
      };
      next(s.scale);
      if constexpr (K.halves) {
        next(s.half[0]);
        next(s.half[1]);
      }
      if constexpr (K.mins) next(s.min[0]);
      if constexpr (K.mins && K.halves) next(s.min[1]);
    }
  }
}

// The scales of the pair of rows `r`; `scales` are those of the first.
template <PairKind K>
[[gnu::always_inline]] inline PairScales pair_scales(const uint8_t* scales, int r) {
  const auto at = [&](int vector) __attribute__((always_inline)) {
    return vld1q_f32(reinterpret_cast<const float*>(scales + vector * kScaleBytes + r * 16));
  };
  PairScales s;
  s.scale = at(0);
  if constexpr (K.halves) {
    s.half[0] = at(1);
    s.half[1] = at(2);
  }
  if constexpr (K.mins) s.min[0] = at(K.halves ? 3 : 1);
  if constexpr (K.mins && K.halves) s.min[1] = at(4);
  return s;
}

// One unpacked piece of R pairs of rows, whose codes and scales these are, by T pairs of tokens, of which `pair` is the first in
// its tile.
template <PairKind K, int R, int T>
[[gnu::always_inline]] inline void add_squares(float32x4_t (&totals)[R][T], const uint8_t* codes,
                                               const uint8_t* scales, const ActivationTile& x, int64_t pair) {
  constexpr int kHalves = K.halves ? 2 : 1;
  const int8_t* quants = &x.quants[0][0] + pair * 64;
  float32x4_t sums[R][T];
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    int32x4_t squares[R][T];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) squares[r][t] = vdupq_n_s32(K.start_bits());
    }
#pragma GCC unroll 4
    for (int c = half * 4 / kHalves; c < (half + 1) * 4 / kHalves; ++c) {
      int8x16_t tokens[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) tokens[t] = vld1q_s8(quants + t * 64 + c * 16);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int8x16_t row = vreinterpretq_s8_u8(vld1q_u8(codes + r * kPairCodes + c * 16));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) squares[r][t] = vmmlaq_s32(squares[r][t], row, tokens[t]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const PairScales s = pair_scales<K>(scales, r);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[r][t] = half_sum<K>(sums[r][t], squares[r][t], half, s.half[half]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const PairScales s = pair_scales<K>(scales, r);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) totals[r][t] = add_square<K>(totals[r][t], sums[r][t], s, x, pair + t);
  }
}

// One half of an unpacked panel, the first of its tokens, and where sums wait for the next chunk.
struct SquarePlace {
  const uint8_t* codes;
  const uint8_t* scales;
  int64_t row, token;
  float* waiting;
};

// Tokens by which four pairs of rows are multiplied at once: as many as leave their sums in registers.
constexpr int64_t tokens_at_once(PairKind kind) {
  return kind.halves ? 4 : 8;
}

// Four pairs of rows of a chunk by T pairs of tokens, the last perhaps of one.
template <PairKind K, int T>
void chunk_of_squares(const PanelGemm& gemm, const SquarePlace& place, const Chunk& chunk) {
  constexpr int R = 4;
  const int64_t rows = gemm.rows - place.row, tokens = gemm.tokens - place.token;
  const int64_t pair = place.token % kTileTokens / 2;
  const ActivationTile* x = gemm.tiles + place.token / kTileTokens * (gemm.cols / 32) + chunk.first;
  float32x4_t totals[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      totals[r][t] = chunk.first == 0 ? vdupq_n_f32(0.0f) : vld1q_f32(place.waiting + (r * T + t) * 4);
  }
  for (int64_t i = 0; i < chunk.count; ++i)
    add_squares<K, R, T>(totals, place.codes + i * pair_bytes(K), place.scales + i * pair_bytes(K), x[i],
                         pair);
  if (!chunk.last) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) vst1q_f32(place.waiting + (r * T + t) * 4, totals[r][t]);
    }
    return;
  }
  float* out = gemm.out + place.token * gemm.out_stride + place.row;
#pragma GCC unroll 8
  for (int r = 0; r < R; r += 2) {
    if (2 * r >= rows) return;
    const float* bias = gemm.bias != nullptr ? gemm.bias + place.row + 2 * r : nullptr;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      store_squares(out + 2 * t * gemm.out_stride + 2 * r, gemm.out_stride, totals[r][t], totals[r + 1][t],
                    bias, rows - 2 * r, tokens - 2 * t);
  }
}

// One chunk of a panel by all tokens. `waiting` has room for kPanelRows sums of each, filled up to tokens_at_once.
template <PairKind K>
void chunk_of_pairs(const PanelGemm& gemm, const uint8_t* unpacked, int64_t row, const Chunk& chunk,
                    float* waiting) {
  constexpr int64_t kTokens = tokens_at_once(K);
  for (int64_t token = 0; token < gemm.tokens; token += kTokens) {
    for (int64_t half = 0; half < kPanelRows && row + half < gemm.rows;
         half += kPanelRows / 2, waiting += kPanelRows / 2 * kTokens) {
      const SquarePlace place{unpacked + half / 2 * kPairCodes, unpacked + kPieceCodes + half * 8, row + half,
                              token, waiting};
      const int64_t left = gemm.tokens - token;
      if (kTokens == 8 && left > 6) {
        chunk_of_squares<K, kTokens / 2>(gemm, place, chunk);
      } else if (kTokens == 8 && left > 4) {
        chunk_of_squares<K, kTokens / 2 - 1>(gemm, place, chunk);
      } else if (left > 2) {
        chunk_of_squares<K, 2>(gemm, place, chunk);
      } else {
        chunk_of_squares<K, 1>(gemm, place, chunk);
      }
    }
  }
}

template <PanelFormat F>
void panels_for_many(const PanelGemm& gemm) {
  constexpr PairKind K = pair_kind<F>();
  static_assert(kPairPieces % F.pieces == 0);
  alignas(64) uint8_t unpacked[kPairPieces * pair_bytes(K)];
  // Not in `out`, whose rows often lie a power of two apart: a few lines of each cache would take them all.
  alignas(64) float waiting[kMostTiledTokens * kPanelRows];
  const int64_t pieces = gemm.cols / 32, most = even_chunk(F, pieces, kPairPieces);
  for (int64_t row = 0; row < gemm.rows; row += kPanelRows) {
    const uint8_t* panel = gemm.panels + row / kPanelRows * F.panel_bytes(gemm.cols);
    for (int64_t first = 0; first < pieces; first += most) {
      const int64_t count = pieces - first < most ? pieces - first : most;
      const Chunk chunk{first, count, first + count == pieces, F.offset_bits};
      unpack_pairs<F>(unpacked, panel, chunk);
      chunk_of_pairs<K>(gemm, unpacked, row, chunk, waiting);
    }
  }
}

template <PanelFormat F>
void gemm_pairs_of(const PanelGemm& gemm) {
  if (gemm.tiles == nullptr) {
    for (int64_t row = 0; row < gemm.rows; row += kPanelRows) {
      for (int64_t token = 0; token < gemm.tokens; ++token) panel_for_one<F>(gemm, row, token);
    }
    return;
  }
  if (gemm.tokens > kFewPairTokens) return panels_for_many<F>(gemm);
  if (gemm.tokens > 6) return panels_for_few<F, 4>(gemm);
  if (gemm.tokens > 4) return panels_for_few<F, 3>(gemm);
  if (gemm.tokens > 2) return panels_for_few<F, 2>(gemm);
  panels_for_few<F, 1>(gemm);
}

// Tokens in pairs, in tiles; without those, each by itself.
inline void gemm_pairs(const PanelGemm& gemm) {
  with_panel_type(gemm.type, [&]<DType type> { gemm_pairs_of<panel_format(type)>(gemm); });
}

}  // namespace
}  // namespace sluice::kernels::cpu
