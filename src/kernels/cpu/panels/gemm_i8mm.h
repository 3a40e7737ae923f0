// GEMMs over panels by SMMLA, which multiplies eight columns of two rows with those of two tokens into a square of four exact
// integers; they are added to the sums by the arithmetic of gemm.h, so that results have the bits of every other level.
// Included by panels_i8mm.cpp only.
//
// A panel is taken by chunks of its columns, which are unpacked into the first cache as pairs of rows and multiplied with all
// tokens: a panel is read from memory once for all tokens of a call. Eight rows by four tokens stay in registers over a chunk.
// A square of a piece takes four SMMLA and four to seven instructions of floats.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/gemm.h"
#include "kernels/cpu/panels/words_i8mm.h"

namespace sluice::kernels::cpu {
namespace {

// Most pieces of a chunk: an unpacked panel and a few tokens' activations fit the first cache, all tokens' activations of the
// chunk the second.
constexpr int64_t kPairPieces = 24;

// An unpacked piece: [8 columns][pair of rows][16 bytes], then for each scale [pair of rows]{s0, s0, s1, s1}.
constexpr int64_t kColumnsBytes = kPanelRows / 2 * 16;
constexpr int64_t pair_bytes(PieceKind kind) {
  return 4 * kColumnsBytes + kColumnsBytes * kind.vectors();
}

inline void store_pairs(uint8_t* to, float32x4_t scales) {
  vst1q_f32(reinterpret_cast<float*>(to), vzip1q_f32(scales, scales));
  vst1q_f32(reinterpret_cast<float*>(to + 16), vzip2q_f32(scales, scales));
}

template <class I, PanelFormat F>
void unpack_pairs(uint8_t* to, const uint8_t* panel, const Chunk& chunk) {
  constexpr PieceKind K = kind_of<I, F>();
  for (int64_t i = chunk.first; i < chunk.first + chunk.count; ++i, to += pair_bytes(K)) {
    const uint8_t* head = panel + i / F.pieces * F.super_bytes();
    const uint8_t* piece = head + F.head_bytes() + i % F.pieces * F.piece_bytes();
    for (int64_t ahead = 0; ahead < F.piece_bytes(); ahead += 64)
      __builtin_prefetch(piece + kPanelPrefetch + ahead);
#pragma GCC unroll 4
    for (int lane = 0; lane < kPanelRows; lane += I::kWidth) {
      const uint8_t* codes = piece + F.scale_bytes() + lane * 4;
      const auto store = [&]<int C>() __attribute__((always_inline)) {
        const auto [low, high] = I::zip(quad_of<I, F, 2 * C>(codes), quad_of<I, F, 2 * C + 1>(codes));
        I::panel_store(to + C * kColumnsBytes + lane * 8, low);
        I::panel_store(to + C * kColumnsBytes + lane * 8 + 16, high);
      };
      store.template operator()<0>();
      store.template operator()<1>();
      store.template operator()<2>();
      store.template operator()<3>();
      const PieceScales<I> s = scales_of<I, F>(head, piece, lane);
      uint8_t* scales = to + 4 * kColumnsBytes + lane * 8;
      const auto next = [&](typename I::F values) __attribute__((always_inline)) {
        store_pairs(scales, values);
        scales += kColumnsBytes;
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

// The scales of two tokens as a square has them: {t0, t1, t0, t1}.
inline float32x4_t token_pair(const float* scales) {
  return vreinterpretq_f32_f64(vld1q_dup_f64(reinterpret_cast<const double*>(scales)));
}

// One piece of R pairs of rows by T pairs of tokens, of which `pair` is the first in its tile.
template <class I, PieceKind K, int R, int T>
[[gnu::always_inline]] inline void add_squares(float32x4_t (&totals)[R][T], const uint8_t* rows,
                                               const ActivationTile& x, int64_t pair) {
  constexpr int kParts = K.halves ? 2 : 1;
  const int8_t* quants = &x.quants[0][0] + pair * 64;
  const auto scales_at = [&](int vector, int r) __attribute__((always_inline)) {
    return vld1q_f32(reinterpret_cast<const float*>(rows + (4 + vector) * kColumnsBytes + r * 16));
  };
  float32x4_t sums[R][T];
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    int32x4_t squares[R][T];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) squares[r][t] = I::start();
    }
#pragma GCC unroll 4
    for (int c = part * 4 / kParts; c < (part + 1) * 4 / kParts; ++c) {
      int8x16_t tokens[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) tokens[t] = vld1q_s8(quants + t * 64 + c * 16);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int8x16_t codes = vreinterpretq_s8_u8(vld1q_u8(rows + c * kColumnsBytes + r * 16));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) squares[r][t] = vmmlaq_s32(squares[r][t], codes, tokens[t]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const float32x4_t sum = I::float_of(squares[r][t]);
        if constexpr (!K.halves) {
          sums[r][t] = sum;
        } else {
          sums[r][t] = part == 0 ? I::mul(sum, scales_at(1, r)) : I::fma(sum, scales_at(2, r), sums[r][t]);
        }
      }
    }
  }
  constexpr int kMin = K.halves ? 3 : 1;
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const int64_t first = 2 * (pair + t);
    const float32x4_t scale = token_pair(x.scale + first);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      totals[r][t] = I::fma(sums[r][t], I::mul(scales_at(0, r), scale), totals[r][t]);
      if constexpr (K.mins && !K.halves)
        totals[r][t] = I::fma(scales_at(kMin, r), token_pair(x.sum + first), totals[r][t]);
      if constexpr (K.mins && K.halves) {
        totals[r][t] = I::fma(scales_at(kMin, r), token_pair(x.half_sums[0] + first), totals[r][t]);
        totals[r][t] = I::fma(scales_at(kMin + 1, r), token_pair(x.half_sums[1] + first), totals[r][t]);
      }
    }
  }
}

// Four rows of two tokens from and to where they lie: a token's rows are neighbours there.
template <class I>
[[gnu::always_inline]] inline void load_squares(float32x4_t& low, float32x4_t& high, const float* from,
                                                int64_t stride, int64_t rows, int64_t tokens) {
  const float32x4_t a = load_rows<I>(from, rows);
  const float32x4_t b = tokens > 1 ? load_rows<I>(from + stride, rows) : vdupq_n_f32(0);
  low = vzip1q_f32(a, b);
  high = vzip2q_f32(a, b);
}
template <class I>
[[gnu::always_inline]] inline void store_squares(float* to, int64_t stride, float32x4_t low, float32x4_t high,
                                                 const float* bias, int64_t rows, int64_t tokens) {
  float32x4_t a = vuzp1q_f32(low, high), b = vuzp2q_f32(low, high);
  if (bias != nullptr) {
    const float32x4_t added = load_rows<I>(bias, rows);
    a = I::add(a, added);
    b = I::add(b, added);
  }
  store_rows<I>(to, a, rows);
  if (tokens > 1) store_rows<I>(to + stride, b, rows);
}

// The rows of one half of an unpacked panel and the first of its tokens.
struct SquarePlace {
  const uint8_t* rows;
  int64_t row, token;
};

// Four pairs of rows of a chunk by T pairs of tokens, the last perhaps of one. Sums of earlier chunks lie in `out`.
template <class I, PieceKind K, int T>
void chunk_of_squares(const PanelGemm& gemm, const SquarePlace& place, const Chunk& chunk) {
  constexpr int R = 4;
  const int64_t rows = gemm.rows - place.row, tokens = gemm.tokens - place.token;
  const int64_t pair = place.token % kTileTokens / 2;
  const ActivationTile* x = gemm.tiles + place.token / kTileTokens * (gemm.cols / 32) + chunk.first;
  float* out = gemm.out + place.token * gemm.out_stride + place.row;
  float32x4_t totals[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; r += 2) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      totals[r][t] = totals[r + 1][t] = I::set1(0.0f);
      if (chunk.first > 0 && 2 * r < rows)
        load_squares<I>(totals[r][t], totals[r + 1][t], out + 2 * t * gemm.out_stride + 2 * r,
                        gemm.out_stride, rows - 2 * r, tokens - 2 * t);
    }
  }
  const uint8_t* unpacked = place.rows;
  for (int64_t i = 0; i < chunk.count; ++i, unpacked += pair_bytes(K))
    add_squares<I, K, R, T>(totals, unpacked, x[i], pair);
#pragma GCC unroll 8
  for (int r = 0; r < R; r += 2) {
    if (2 * r >= rows) return;
    const float* bias = chunk.last && gemm.bias != nullptr ? gemm.bias + place.row + 2 * r : nullptr;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      store_squares<I>(out + 2 * t * gemm.out_stride + 2 * r, gemm.out_stride, totals[r][t], totals[r + 1][t],
                       bias, rows - 2 * r, tokens - 2 * t);
  }
}

// The pieces of the chunks of a row: of about the same size, in whole super-blocks.
template <PanelFormat F>
int64_t pieces_of_pairs(int64_t pieces) {
  const int64_t chunks = (pieces + kPairPieces - 1) / kPairPieces;
  return ((pieces + chunks - 1) / chunks + F.pieces - 1) / F.pieces * F.pieces;
}

template <class I, DType type>
void gemm_pairs_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  constexpr PieceKind K = kind_of<I, F>();
  static_assert(!K.offset && kPairPieces % F.pieces == 0);
  alignas(64) uint8_t unpacked[kPairPieces * pair_bytes(K)];
  const int64_t pieces = gemm.cols / 32, most = pieces_of_pairs<F>(pieces);
  for (int64_t row = 0; row < gemm.rows; row += kPanelRows) {
    const uint8_t* panel = gemm.panels + row / kPanelRows * F.panel_bytes(gemm.cols);
    for (int64_t first = 0; first < pieces; first += most) {
      const int64_t count = pieces - first < most ? pieces - first : most;
      const Chunk chunk{first, count, first + count == pieces, F.offset_bits};
      unpack_pairs<I, F>(unpacked, panel, chunk);
      for (int64_t token = 0; token < gemm.tokens; token += 4) {
        for (int64_t half = 0; half < kPanelRows && row + half < gemm.rows; half += kPanelRows / 2) {
          const SquarePlace place{unpacked + half * 8, row + half, token};
          if (gemm.tokens - token > 2) {
            chunk_of_squares<I, K, 2>(gemm, place, chunk);
          } else {
            chunk_of_squares<I, K, 1>(gemm, place, chunk);
          }
        }
      }
    }
  }
}

// REQUIRES: gemm.tiles with tokens in pairs, or what SDOT reads.
template <class I>
void gemm_pairs(const PanelGemm& gemm) {
  if (gemm.tiles == nullptr) return dotprod_panels().gemm(gemm);
  with_panel_type(gemm.type, [&]<DType type> { gemm_pairs_of<I, type>(gemm); });
}

}  // namespace
}  // namespace sluice::kernels::cpu
