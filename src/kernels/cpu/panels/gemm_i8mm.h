// GEMMs over panels by SMMLA, which multiplies eight columns of two rows with those of two tokens into a square of four exact
// integers; they are added to the sums by the arithmetic of gemm.h, so that results have the bits of every other level.
// Included by panels_i8mm.cpp only.
//
// Up to eight tokens: codes are unpacked in registers, once for all tokens, piece after piece, as memory gives them. More: a panel
// is taken by chunks of its columns, which are unpacked into the first cache as pairs of rows and multiplied with all tokens.
// Either way a panel is read from memory once for all tokens of a call. A square of a piece takes four SMMLA and four to seven
// instructions of floats; of the chunks of a panel, eight rows by four tokens stay in registers.
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

// The integers of a square, before the scales of its rows: those of the first half of a piece, then the second's.
template <class I, PieceKind K>
[[gnu::always_inline]] inline float32x4_t half_sum(float32x4_t sum, int32x4_t square, int half,
                                                   float32x4_t half_scale) {
  if constexpr (!K.halves) return I::float_of(square);
  return half == 0 ? I::mul(I::float_of(square), half_scale) : I::fma(I::float_of(square), half_scale, sum);
}

// Adds the sum of a piece. `s` has the scales of two rows as a square has them, {r0, r0, r1, r1}.
template <class I, PieceKind K>
[[gnu::always_inline]] inline float32x4_t add_square(float32x4_t total, float32x4_t sum,
                                                     const PieceScales<I>& s, const ActivationTile& x,
                                                     int64_t pair) {
  total = I::fma(sum, I::mul(s.scale, token_pair(x.scale + 2 * pair)), total);
  if constexpr (K.mins && !K.halves) total = I::fma(s.min[0], token_pair(x.sum + 2 * pair), total);
  if constexpr (K.mins && K.halves) {
    total = I::fma(s.min[0], token_pair(x.half_sums[0] + 2 * pair), total);
    total = I::fma(s.min[1], token_pair(x.half_sums[1] + 2 * pair), total);
  }
  return total;
}

// The scales of the pair of rows `r` of an unpacked piece.
template <class I, PieceKind K>
[[gnu::always_inline]] inline PieceScales<I> pair_scales(const uint8_t* rows, int r) {
  const auto at = [&](int vector) __attribute__((always_inline)) {
    return vld1q_f32(reinterpret_cast<const float*>(rows + (4 + vector) * kColumnsBytes + r * 16));
  };
  PieceScales<I> s;
  s.scale = at(0);
  if constexpr (K.halves) {
    s.half[0] = at(1);
    s.half[1] = at(2);
  }
  if constexpr (K.mins) s.min[0] = at(K.halves ? 3 : 1);
  if constexpr (K.mins && K.halves) s.min[1] = at(4);
  return s;
}

// One piece of R pairs of rows by T pairs of tokens, of which `pair` is the first in its tile.
template <class I, PieceKind K, int R, int T>
[[gnu::always_inline]] inline void add_squares(float32x4_t (&totals)[R][T], const uint8_t* rows,
                                               const ActivationTile& x, int64_t pair) {
  constexpr int kHalves = K.halves ? 2 : 1;
  const int8_t* quants = &x.quants[0][0] + pair * 64;
  float32x4_t sums[R][T];
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    int32x4_t squares[R][T];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) squares[r][t] = I::start();
    }
#pragma GCC unroll 4
    for (int c = half * 4 / kHalves; c < (half + 1) * 4 / kHalves; ++c) {
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
      const PieceScales<I> s = pair_scales<I, K>(rows, r);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[r][t] = half_sum<I, K>(sums[r][t], squares[r][t], half, s.half[half]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const PieceScales<I> s = pair_scales<I, K>(rows, r);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) totals[r][t] = add_square<I, K>(totals[r][t], sums[r][t], s, x, pair + t);
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

// -- few tokens

constexpr int64_t kFewPairTokens = 8;

// The scales of two of four rows, as a square has them.
template <class I, PieceKind K>
[[gnu::always_inline]] inline PieceScales<I> scales_of_pair(const PieceScales<I>& rows, int pair) {
  const auto two = [&](float32x4_t x) __attribute__((always_inline)) {
    return pair == 0 ? vzip1q_f32(x, x) : vzip2q_f32(x, x);
  };
  PieceScales<I> s;
  s.scale = two(rows.scale);
  if constexpr (K.halves) {
    s.half[0] = two(rows.half[0]);
    s.half[1] = two(rows.half[1]);
  }
  if constexpr (K.mins) s.min[0] = two(rows.min[0]);
  if constexpr (K.mins && K.halves) s.min[1] = two(rows.min[1]);
  return s;
}

// Four rows of a stored piece by T pairs of tokens, of which `pair` is the first.
template <class I, PanelFormat F, int T>
[[gnu::always_inline]] inline void add_stored_squares(float32x4_t (&totals)[2][T], const uint8_t* head,
                                                      const uint8_t* piece, int lane, const ActivationTile& x,
                                                      int64_t pair) {
  constexpr PieceKind K = kind_of<I, F>();
  constexpr int kHalves = K.halves ? 2 : 1;
  int8x16_t codes[2][4];
  const auto unpack = [&]<int C>() __attribute__((always_inline)) {
    const uint8_t* quads = piece + F.scale_bytes() + lane * 4;
    const auto [low, high] = I::zip(quad_of<I, F, 2 * C>(quads), quad_of<I, F, 2 * C + 1>(quads));
    codes[0][C] = vreinterpretq_s8_u8(low);
    codes[1][C] = vreinterpretq_s8_u8(high);
  };
  unpack.template operator()<0>();
  unpack.template operator()<1>();
  unpack.template operator()<2>();
  unpack.template operator()<3>();
  const PieceScales<I> rows = scales_of<I, F>(head, piece, lane);
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r) {
    const PieceScales<I> s = scales_of_pair<I, K>(rows, r);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const int8_t* quants = &x.quants[0][0] + (pair + t) * 64;
      float32x4_t sum = {};
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half) {
        int32x4_t square = I::start();
#pragma GCC unroll 4
        for (int c = half * 4 / kHalves; c < (half + 1) * 4 / kHalves; ++c)
          square = vmmlaq_s32(square, codes[r][c], vld1q_s8(quants + c * 16));
        sum = half_sum<I, K>(sum, square, half, s.half[half]);
      }
      totals[r][t] = add_square<I, K>(totals[r][t], sum, s, x, pair + t);
    }
  }
}

// A panel by T pairs of tokens from `token` on, the last perhaps of one. Sums of more pairs would not fit into registers
// beside the codes.
template <class I, PanelFormat F, int T>
void panel_for_pairs(const PanelGemm& gemm, int64_t row, int64_t token) {
  constexpr int G = kPanelRows / I::kWidth;
  const uint8_t* head = gemm.panels + row / kPanelRows * F.panel_bytes(gemm.cols);
  float32x4_t totals[G][2][T];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) totals[g][0][t] = totals[g][1][t] = I::set1(0.0f);
  }
  const ActivationTile* x = gemm.tiles;
  for (int64_t block = 0; block < gemm.cols / 32; block += F.pieces, head += F.super_bytes()) {
    const uint8_t* piece = head + F.head_bytes();
    for (int i = 0; i < F.pieces; ++i, piece += F.piece_bytes(), ++x) {
      for (int64_t ahead = 0; ahead < F.piece_bytes(); ahead += 64)
        __builtin_prefetch(piece + kPanelPrefetch + ahead);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g)
        add_stored_squares<I, F, T>(totals[g], head, piece, g * I::kWidth, *x, token / 2);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    const int64_t first = row + g * I::kWidth, rows = gemm.rows - first;
    if (rows <= 0) return;
    const float* bias = gemm.bias == nullptr ? nullptr : gemm.bias + first;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t)
      store_squares<I>(gemm.out + (token + 2 * t) * gemm.out_stride + first, gemm.out_stride, totals[g][0][t],
                       totals[g][1][t], bias, rows, gemm.tokens - token - 2 * t);
  }
}

// A panel's second reading finds it in a cache.
template <class I, PanelFormat F>
void panels_for_few(const PanelGemm& gemm) {
  for (int64_t row = 0; row < gemm.rows; row += kPanelRows) {
    for (int64_t token = 0; token < gemm.tokens; token += 4) {
      if (gemm.tokens - token > 2) {
        panel_for_pairs<I, F, 2>(gemm, row, token);
      } else {
        panel_for_pairs<I, F, 1>(gemm, row, token);
      }
    }
  }
}

// -- more tokens

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

template <class I, DType type>
void gemm_pairs_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  constexpr PieceKind K = kind_of<I, F>();
  static_assert(!K.offset && kPairPieces % F.pieces == 0);
  if (gemm.tokens <= kFewPairTokens) return panels_for_few<I, F>(gemm);
  alignas(64) uint8_t unpacked[kPairPieces * pair_bytes(K)];
  const int64_t pieces = gemm.cols / 32, most = even_chunk(F, pieces, kPairPieces);
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
