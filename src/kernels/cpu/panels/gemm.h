// GEMMs of activations [tokens, cols] with weights in panels (format.h). Included by the files panels_NAME.cpp only.
//
// One token, or up to eight where a vector holds a panel's rows: codes are unpacked in registers, once for all tokens, panel
// after panel, as memory gives them. More tokens: up to 576 columns of one or two panels are unpacked into the first cache
// (bytes and float scales) and multiplied with all tokens, four or six at a time. A panel is read once for up to 256 tokens of a
// call. Either way a piece of 32 columns gives an exact integer sum, which is added to one float per row and token by the
// arithmetic of gemm/gemm.h, piece after piece: panels give the bits that rows in file order give, on every level, for any
// number of tokens and any cut. Levels whose product of bytes adds up pairs of columns to 16 bits stay there for as many columns
// as the type's codes allow. The back-end cuts the work into ranges of panels. Bytes moved: those of the panels.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/panels/codes.h"
#include "kernels/cpu/panels/format.h"
#include "kernels/cpu/panels/kernels.h"
#include "kernels/cpu/panels/panel_types.h"

namespace sluice::kernels::cpu {
namespace {

// Few tokens stream the panels from memory: this far ahead of a piece, into the first cache, or as far as the level says into the
// second one and, closer by, from there into the first. Levels whose hardware follows a stream by itself ask for nothing: on a
// Neoverse V1 fetches so far ahead, beside its own, halve the speed of reading.
constexpr int64_t kPanelPrefetch = 4096;
template <class I, PanelFormat F>
[[gnu::always_inline]] inline void fetch_ahead(const uint8_t* piece) {
  if constexpr (!requires { I::kFollowsStreams; }) {
    for (int64_t ahead = 0; ahead < F.piece_bytes(); ahead += 64) {
      if constexpr (requires { I::kSecondCachePrefetch; }) {
        __builtin_prefetch(piece + I::kSecondCachePrefetch + ahead, 0, 2);
        __builtin_prefetch(piece + I::kFirstCachePrefetch + ahead);
      } else {
        __builtin_prefetch(piece + kPanelPrefetch + ahead);
      }
    }
  }
}

// What tiles over unpacked panels are compiled for.
struct PieceKind {
  bool halves = false;  // a scale for each 16 columns
  bool mins = false;
  bool offset = false;  // codes carry one
  bool signed_codes = false;
  int in_pairs = 1;  // quads of one half that are added up in 16 bits

  constexpr int vectors() const { return 1 + (halves ? 2 : 0) + (mins ? (halves ? 2 : 1) : 0); }
  constexpr int64_t bytes() const { return 512 + 64 * vectors(); }  // of an unpacked piece
};

template <class I, PanelFormat F>
constexpr PieceKind kind_of() {
  constexpr bool kHalves =
      F.scales == PanelFormat::Scales::HalfScales || F.scales == PanelFormat::Scales::TwoHalves;
  constexpr int kInPairs = quads_in_pairs<I, F>();
  return {kHalves, F.mins, F.offset_bits >= 0 && !signed_codes<I, F>(), signed_codes<I, F>(),
          kHalves && kInPairs > 4 ? 4 : kInPairs};
}

// The sum of a piece as a float, before its scale. With a scale for each half, products and their sum stay below 2^24
// (2 * 16 * 32 * 127 * 128), so floats hold the integer exactly.
template <class I, PieceKind K, class X>
[[gnu::always_inline]] inline typename I::F add_piece_sum(typename I::F total,
                                                          const typename I::S (&quads)[2],
                                                          const PieceScales<I>& s, const X& x) {
  typename I::F sum = I::panel_float(quads[0]);
  if constexpr (K.halves) sum = I::fma(I::panel_float(quads[1]), s.half[1], I::mul(sum, s.half[0]));
  total = I::fma(sum, I::mul(s.scale, I::set1(x.scale)), total);
  if constexpr (K.mins && !K.halves) total = I::fma(s.min[0], I::set1(x.sum), total);
  if constexpr (K.mins && K.halves) {
    total = I::fma(s.min[0], I::set1(x.half_sums[0]), total);
    total = I::fma(s.min[1], I::set1(x.half_sums[1]), total);
  }
  return total;
}

// value << bits in each lane. Loaded by a broadcast and shifted there, where the level can, it takes two instructions, not four.
template <class I>
[[gnu::always_inline]] inline typename I::S shifted_ints(const int32_t& value, int bits) {
  if constexpr (requires { I::panel_shifted_ints(value, bits); }) return I::panel_shifted_ints(value, bits);
  return I::panel_ints(value * (1 << bits));
}

// Where integer sums start: at what the offset of the codes would add too much.
template <class I, PieceKind K>
[[gnu::always_inline]] inline void start_sums(typename I::S (&quads)[2], const PanelActivations& x,
                                              int bits) {
  if constexpr (!K.offset) {
    quads[0] = I::panel_ints(0);
    if constexpr (K.halves) quads[1] = I::panel_ints(0);
  } else if constexpr (K.halves) {
    quads[0] = shifted_ints<I>(x.negated_halves[0], bits);
    quads[1] = shifted_ints<I>(x.negated_halves[1], bits);
  } else {
    quads[0] = shifted_ints<I>(x.negated_sum, bits);
  }
}

template <class I, PieceKind K>
[[gnu::always_inline]] inline typename I::S dot_of(typename I::S sum, typename I::P codes, const int8_t* x) {
  if constexpr (K.signed_codes) return I::panel_dot_signed(sum, codes, I::panel_x(x));
  return I::panel_dot(sum, codes, I::panel_x(x));
}

// Adds quad `q` of codes by columns [4 q, 4 q + 4) of `x` to the sums of a piece. `pairs` carries what has been added up in 16
// bits from one quad to the next. Levels that multiply by a part of a vector (`Q`, which is q) need not broadcast it.
template <class I, PieceKind K, int Q = -1>
[[gnu::always_inline]] inline void add_quad(typename I::S (&sums)[2], typename I::P& pairs, int q,
                                            typename I::P codes, const int8_t* x) {
  auto& sum = sums[K.halves ? q / 4 : 0];
  if constexpr (K.in_pairs > 1) {
    const auto products = I::panel_pairs(codes, I::panel_x(x + 4 * q));
    pairs = q % K.in_pairs == 0 ? products : I::panel_add_pairs(pairs, products);
    if (q % K.in_pairs == K.in_pairs - 1) sum = I::panel_widen(sum, pairs);
  } else if constexpr (Q >= 0 && requires { I::template panel_dot_lane<Q>(sum, codes, x); }) {
    sum = I::template panel_dot_lane<Q>(sum, codes, x);
  } else {
    sum = dot_of<I, K>(sum, codes, x + 4 * q);
  }
}

// `count` floats, fewer than a vector where rows end.
template <class I>
inline void store_rows(float* out, typename I::F value, int64_t count) {
  if (count >= I::kWidth) return I::store(out, value);
  float values[I::kWidth];
  I::store(values, value);
  for (int64_t r = 0; r < count; ++r) out[r] = values[r];
}
template <class I>
inline typename I::F load_rows(const float* from, int64_t count) {
  if (count >= I::kWidth) return I::load(from);
  float values[I::kWidth] = {};
  for (int64_t r = 0; r < count; ++r) values[r] = from[r];
  return I::load(values);
}

// -- few tokens

// Up to how many: where a product of bytes takes several instructions, unpacking once for all tokens pays sooner.
template <class I>
constexpr int64_t few_tokens() {
  if constexpr (requires { I::kFewTokens; }) return I::kFewTokens;
  return I::kWidth == kPanelRows ? 16 : 1;
}

// Whether a token's products of a piece are added up in two chains, every other quad in each: the eight of one chain take longer
// than what they hold up.
template <class I, PieceKind K>
constexpr bool in_two_chains() {
  if constexpr (requires { I::kTwoChains; }) return !K.halves;
  return false;
}

// The rows of one vector of a piece by N tokens: codes are unpacked once for all.
template <class I, PanelFormat F, int N>
[[gnu::always_inline]] inline void add_stored(typename I::F (&totals)[N], const uint8_t* head,
                                              const uint8_t* piece, int lane,
                                              const PanelActivations* const (&x)[N]) {
  constexpr PieceKind K = kind_of<I, F>();
  constexpr bool kTwoChains = in_two_chains<I, K>();
  typename I::S quads[N][2];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    start_sums<I, K>(quads[n], *x[n], F.offset_bits);
    if constexpr (kTwoChains) quads[n][1] = I::panel_ints(0);
  }
  typename I::P pairs[N];
  const uint8_t* codes = piece + F.scale_bytes() + lane * 4;
  const auto add = [&]<int Q>() __attribute__((always_inline)) {
    const auto quad = quad_of<I, F, Q>(codes);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      if constexpr (kTwoChains) {
        quads[n][Q % 2] = I::template panel_dot_lane<Q>(quads[n][Q % 2], quad, x[n]->quants);
      } else {
        add_quad<I, K, Q>(quads[n], pairs[n], Q, quad, x[n]->quants);
      }
    }
  };
  [&]<int... Q>(std::integer_sequence<int, Q...>) __attribute__((always_inline)) {
    (add.template operator()<Q>(), ...);
  }
  (std::make_integer_sequence<int, 8>());
  const PieceScales<I> s = scales_of<I, F>(head, piece, lane);
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    if constexpr (kTwoChains) quads[n][0] = I::panel_add(quads[n][0], quads[n][1]);
    totals[n] = add_piece_sum<I, K>(totals[n], quads[n], s, *x[n]);
  }
}

// One panel by N tokens from `token` on.
template <class I, PanelFormat F, int N>
void panel_for_few(const PanelGemm& gemm, int64_t panel, int64_t token) {
  constexpr int V = kPanelRows / I::kWidth;
  const uint8_t* head = gemm.panels + panel * F.panel_bytes(gemm.cols);
  const PanelActivations* x[N];
  typename I::F sums[V][N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    x[n] = gemm.x + (token + n) * (gemm.cols / 32);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[v][n] = I::set1(0.0f);
  }
  for (int64_t block = 0; block < gemm.cols / 32; block += F.pieces, head += F.super_bytes()) {
    const uint8_t* piece = head + F.head_bytes();
    for (int i = 0; i < F.pieces; ++i, piece += F.piece_bytes()) {
      fetch_ahead<I, F>(piece);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) add_stored<I, F, N>(sums[v], head, piece, v * I::kWidth, x);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) ++x[n];
    }
  }
  for (int v = 0; v < V; ++v) {
    const int64_t row = panel * kPanelRows + v * I::kWidth;
    if (row >= gemm.rows) return;
    for (int n = 0; n < N; ++n) {
      if (gemm.bias != nullptr)
        sums[v][n] = I::add(sums[v][n], load_rows<I>(gemm.bias + row, gemm.rows - row));
      store_rows<I>(gemm.out + (token + n) * gemm.out_stride + row, sums[v][n], gemm.rows - row);
    }
  }
}

// All tokens from `token` on, N at a time. A panel's second reading finds it in a cache.
template <class I, PanelFormat F, int N>
void panel_by_tokens(const PanelGemm& gemm, int64_t panel, int64_t token) {
  for (; token + N <= gemm.tokens; token += N) panel_for_few<I, F, N>(gemm, panel, token);
  if constexpr (N > 1) {
    if (token < gemm.tokens) panel_by_tokens<I, F, N - 1>(gemm, panel, token);
  }
}

// -- more tokens

// Unpacked at once: two panels and a few tokens' activations fit the first cache.
constexpr int64_t kChunkPieces = 18;

// The columns of one chunk.
struct Chunk {
  int64_t first;  // piece
  int64_t count;  // pieces
  bool last;      // of the row: the bias is added
  int offset_bits;
  float* waiting =
      nullptr;  // sums of the chunks before and of this one: [tokens][rows that are multiplied at once]
};

// The columns that are unpacked after those of a chunk, of the same panels or of the next ones: memory brings them into the second
// cache beside the multiplications.
struct ComingPieces {
  const uint8_t* at;  // of the first panel
  int64_t panel_bytes;
  int64_t bytes;  // of each panel
  int64_t share;  // of them, with each piece of a few tokens
  int64_t brought = 0;

  template <int R>
  [[gnu::always_inline]] void bring() {
    const int64_t end = brought + share < bytes ? brought + share : bytes;
    for (; brought < end; brought += 64) {
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) __builtin_prefetch(at + r * panel_bytes + brought, 0, 2);
    }
  }
};

// `count` pieces of a panel from piece `first` on into `to`: 8 quads of 64 bytes, then vectors of 16 floats.
template <class I, PanelFormat F>
void unpack_panel(uint8_t* to, const uint8_t* panel, const Chunk& chunk) {
  constexpr PieceKind K = kind_of<I, F>();
  for (int64_t i = chunk.first; i < chunk.first + chunk.count; ++i, to += K.bytes()) {
    const uint8_t* head = panel + i / F.pieces * F.super_bytes();
    const uint8_t* piece = head + F.head_bytes() + i % F.pieces * F.piece_bytes();
#pragma GCC unroll 4
    for (int lane = 0; lane < kPanelRows; lane += I::kWidth) {
      const uint8_t* codes = piece + F.scale_bytes() + lane * 4;
      [&]<int... Q>(std::integer_sequence<int, Q...>) __attribute__((always_inline)) {
        (I::panel_store(to + Q * 64 + lane * 4, quad_of<I, F, Q>(codes)), ...);
      }
      (std::make_integer_sequence<int, 8>());
      const PieceScales<I> s = scales_of<I, F>(head, piece, lane);
      auto* floats = reinterpret_cast<float*>(to + 512) + lane;
      I::store(floats, s.scale);
      if constexpr (K.halves) {
        I::store(floats + 16, s.half[0]);
        I::store(floats + 32, s.half[1]);
      }
      if constexpr (K.mins) I::store(floats + (K.halves ? 48 : 16), s.min[0]);
      if constexpr (K.mins && K.halves) I::store(floats + 64, s.min[1]);
    }
  }
}

template <class I, PieceKind K>
[[gnu::always_inline]] inline PieceScales<I> unpacked_scales(const uint8_t* piece, int lane) {
  const auto* floats = reinterpret_cast<const float*>(piece + 512) + lane;
  PieceScales<I> s;
  s.scale = I::load(floats);
  if constexpr (K.halves) {
    s.half[0] = I::load(floats + 16);
    s.half[1] = I::load(floats + 32);
  }
  if constexpr (K.mins) s.min[0] = I::load(floats + (K.halves ? 48 : 16));
  if constexpr (K.mins && K.halves) s.min[1] = I::load(floats + 64);
  return s;
}

// One piece of B vectors by N tokens.
template <class I, PieceKind K, int B, int N>
[[gnu::always_inline]] inline void add_unpacked(typename I::F (*sums)[N], const uint8_t* const (&pieces)[B],
                                                const int (&lanes)[B], const PanelActivations* const (&x)[N],
                                                int offset_bits) {
  typename I::S quads[B][N][2];
  typename I::P pairs[B][N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    start_sums<I, K>(quads[0][n], *x[n], offset_bits);
#pragma GCC unroll 8
    for (int b = 1; b < B; ++b) {
      quads[b][n][0] = quads[0][n][0];
      if constexpr (K.halves) quads[b][n][1] = quads[0][n][1];
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    typename I::P weights[B];
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) weights[b] = I::panel_load(pieces[b] + q * 64 + lanes[b] * 4);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) add_quad<I, K>(quads[b][n], pairs[b][n], q, weights[b], x[n]->quants);
    }
  }
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b) {
    const auto s = unpacked_scales<I, K>(pieces[b], lanes[b]);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[b][n] = add_piece_sum<I, K>(sums[b][n], quads[b][n], s, *x[n]);
  }
}

// A chunk of R unpacked panels, whose first is `panel`, by N tokens from `token` on.
template <class I, PieceKind K, int R, int N>
void chunk_tile(const PanelGemm& gemm, const uint8_t* unpacked, const Chunk& chunk, ComingPieces& coming,
                int64_t panel, int64_t token) {
  constexpr int V = R * kPanelRows / I::kWidth;
  constexpr int B = I::kPanelVectors < V ? I::kPanelVectors : V;
  const PanelActivations* x[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) x[n] = gemm.x + (token + n) * (gemm.cols / 32) + chunk.first;
  typename I::F sums[V][N];
  float* const waiting = chunk.waiting + token * (R * kPanelRows);
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      sums[v][n] = chunk.first == 0 ? I::set1(0.0f) : I::load(waiting + n * (R * kPanelRows) + v * I::kWidth);
  }
  for (int64_t i = 0; i < chunk.count; ++i, unpacked += K.bytes()) {
    if constexpr (!requires { I::kFollowsStreams; }) coming.bring<R>();
#pragma GCC unroll 16
    for (int v = 0; v < V; v += B) {
      const uint8_t* pieces[B];
      int lanes[B];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        pieces[b] = unpacked + (v + b) * I::kWidth / kPanelRows * (kChunkPieces * K.bytes());
        lanes[b] = (v + b) * I::kWidth % kPanelRows;
      }
      add_unpacked<I, K, B, N>(sums + v, pieces, lanes, x, chunk.offset_bits);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) ++x[n];
  }
  if (!chunk.last) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) I::store(waiting + n * (R * kPanelRows) + v * I::kWidth, sums[v][n]);
    }
    return;
  }
  float* out = gemm.out + token * gemm.out_stride + panel * kPanelRows;
  const int64_t rows = gemm.rows - panel * kPanelRows;
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) {
    const int64_t left = rows - v * I::kWidth;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      if (left <= 0) continue;
      if (gemm.bias != nullptr)
        sums[v][n] = I::add(sums[v][n], load_rows<I>(gemm.bias + panel * kPanelRows + v * I::kWidth, left));
      store_rows<I>(out + n * gemm.out_stride + v * I::kWidth, sums[v][n], left);
    }
  }
}

// Tokens by which unpacked panels are multiplied at once: as many as leave their sums in registers. Where a product of bytes adds to a
// sum by itself, those of six tokens hide its latency.
template <class I, PieceKind K>
constexpr int chunk_tile_tokens() {
  if constexpr (requires { I::kChunkTileTokens; }) return K.halves ? 4 : I::kChunkTileTokens;
  return 4;
}

template <class I, PieceKind K, int R, int N = chunk_tile_tokens<I, K>()>
void chunk_tokens(const PanelGemm& gemm, const uint8_t* unpacked, const Chunk& chunk, ComingPieces& coming,
                  int64_t panel, int64_t token = 0) {
  for (; token + N <= gemm.tokens; token += N)
    chunk_tile<I, K, R, N>(gemm, unpacked, chunk, coming, panel, token);
  constexpr int kNext = N > 4 ? 4 : N - 1;
  if constexpr (kNext > 0) {
    if (token < gemm.tokens) chunk_tokens<I, K, R, kNext>(gemm, unpacked, chunk, coming, panel, token);
  }
}

// Tokens of one pass over a panel, whose sums wait on the stack from chunk to chunk: in `out`, whose rows often lie a power of two
// apart, a few lines of each cache would take them all.
constexpr int64_t kWaitingTokens = 256;

// REQUIRES: gemm.tokens is at most kWaitingTokens.
template <class I, PanelFormat F, int R>
void panels_for_many(const PanelGemm& gemm, int64_t panel) {
  constexpr PieceKind K = kind_of<I, F>();
  alignas(64) float waiting[kWaitingTokens * R * kPanelRows];
  // Where rows end in the first of two panels, the second is multiplied as it lies and not stored.
  alignas(64) uint8_t unpacked[R * kChunkPieces * K.bytes()];
  if ((panel + R - 1) * kPanelRows >= gemm.rows) __builtin_memset(unpacked, 0, sizeof unpacked);
  constexpr int kTokens = chunk_tile_tokens<I, K>();
  const int64_t pieces = gemm.cols / 32, chunks = (pieces + kChunkPieces - 1) / kChunkPieces;
  const int64_t most = (pieces + chunks - 1) / chunks, panel_bytes = F.panel_bytes(gemm.cols);
  for (int64_t first = 0; first < pieces; first += most) {
    const int64_t count = pieces - first < most ? pieces - first : most;
    const Chunk chunk{first, count, first + count == pieces, F.offset_bits, waiting};
    for (int64_t r = 0; r < R && (panel + r) * kPanelRows < gemm.rows; ++r)
      unpack_panel<I, F>(unpacked + r * kChunkPieces * K.bytes(), gemm.panels + (panel + r) * panel_bytes,
                         chunk);
    const int64_t next = chunk.last ? 0 : first + count, tiles = (gemm.tokens + kTokens - 1) / kTokens;
    const int64_t bytes = most * F.super_bytes() / F.pieces;
    ComingPieces coming{
        gemm.panels + (panel + (chunk.last ? R : 0)) * panel_bytes + next / F.pieces * F.super_bytes(),
        panel_bytes, bytes, (bytes / (tiles * count) + 63) / 64 * 64};
    chunk_tokens<I, K, R>(gemm, unpacked, chunk, coming, panel);
  }
}

template <class I, DType type>
void gemm_panels_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  // Sums of eight tokens fit into registers beside the codes where a vector holds a whole panel.
  constexpr bool kWhole = I::kWidth == kPanelRows;
  if (gemm.tokens <= few_tokens<I>()) {
    for (int64_t panel = 0; panel < panels; ++panel) panel_by_tokens<I, F, kWhole ? 8 : 1>(gemm, panel, 0);
    return;
  }
  PanelGemm pass = gemm;
  for (int64_t token = 0; token < gemm.tokens; token += pass.tokens) {
    pass.tokens = gemm.tokens - token < kWaitingTokens ? gemm.tokens - token : kWaitingTokens;
    pass.out = gemm.out + token * gemm.out_stride;
    pass.x = gemm.x + token * (gemm.cols / 32);
    for (int64_t panel = 0; panel < panels; panel += I::kPanelsAtOnce)
      panels_for_many<I, F, I::kPanelsAtOnce>(pass, panel);
  }
}

template <class I>
void gemm_panels(const PanelGemm& gemm) {
  with_panel_type(gemm.type, [&]<DType type> { gemm_panels_of<I, type>(gemm); });
}

}  // namespace
}  // namespace sluice::kernels::cpu
