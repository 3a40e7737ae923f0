// GEMMs over panels by matrix tiles: 16 tokens x 16 rows, signed bytes. A tile multiplies a piece of 32 columns (16, where each
// half has a scale) into exact integers, which AVX-512 adds to the sums by the arithmetic of gemm.h; results have the bits of
// every other level. Included by panels_amx.cpp only.
//
// Eight panels at a time are taken by chunks of their columns. Of a chunk two panels are unpacked into the first cache and
// multiplied with all tokens: the chunk's activations and the sums of the chunks before stay in the second cache while the
// panels pass by, and a panel is read once. Sums of a tile stay in registers over a chunk. The additions are what a piece
// costs: three to six vector instructions a token, beside which tile instructions hardly run.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/panels/gemm.h"

namespace sluice::kernels::cpu {
namespace {

// Integer sums of a piece: [token][row], for each half where each has a scale.
struct PieceSums {
  const int32_t (*halves[2])[kTileTokens][kPanelRows];
};

// Panels whose sums of 512 tokens lie in the second cache.
constexpr int64_t kTilePanels = 8;
constexpr int64_t kSumsPerTile = kTileTokens * kPanelRows;

// The first row, by its panel, and the first token of a tile, and its sums of the chunks before.
struct TilePlace {
  int64_t panel, token;
  float* sums;  // [kTileTokens][kPanelRows]
};

// Tiles of sums that are under way at a time.
constexpr int kSumTiles = 4;

// The tile instructions in plain loops, for processors without them.
struct ModelTiles {
  explicit ModelTiles(bool /*halves*/) {}
  // Tile `Sum` = activations x codes, of the columns from `first` on.
  template <int Sum, int Columns>
  void multiply(const int8_t (*x)[32], int first, const uint8_t* codes) {
    for (int token = 0; token < kTileTokens; ++token) {
      for (int row = 0; row < kPanelRows; ++row) {
        int32_t sum = 0;
        for (int k = 0; k < Columns; ++k)
          sum += x[token][first + k] * static_cast<int8_t>(codes[k / 4 * 64 + row * 4 + k % 4]);
        sums_[Sum][token][row] = sum;
      }
    }
  }
  template <int Sum>
  void store(int32_t (&out)[kTileTokens][kPanelRows]) const {
    __builtin_memcpy(out, sums_[Sum], sizeof out);
  }

 private:
  int32_t sums_[kSumTiles][kTileTokens][kPanelRows];
};

// What add_piece_sum reads of a token.
struct TokenScales {
  float scale, sum, half_sums[2];
};

template <class I, PieceKind K, int N>
[[gnu::always_inline]] inline void add_tile(typename I::F (&sums)[N], const PieceSums& integers,
                                            const ActivationTile& x, const uint8_t* unpacked) {
  const PieceScales<I> s = unpacked_scales<I, K>(unpacked, 0);
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    typename I::S quads[2];
    quads[0] = I::panel_sums((*integers.halves[0])[n]);
    if constexpr (K.halves) quads[1] = I::panel_sums((*integers.halves[1])[n]);
    const TokenScales token{x.scale[n], x.sum[n], {x.half_sums[0][n], x.half_sums[1][n]}};
    sums[n] = add_piece_sum<I, K>(sums[n], quads, s, token);
  }
}

// The pieces of a chunk that one panel and 16 tokens have.
struct TilePieces {
  const ActivationTile* x;
  const uint8_t* unpacked;
  int64_t count;
  const uint8_t* next;  // what memory shall bring meanwhile, `next_bytes` for each piece; null: nothing
  int64_t next_bytes;

  void fetch(int64_t i) const {
    if (next == nullptr) return;
    for (int64_t at = 0; at < next_bytes; at += 64) __builtin_prefetch(next + i * next_bytes + at, 0, 2);
  }
};

// Adds the pieces of a chunk to the sums. A tile's integers pass through memory: it is multiplied two turns before its
// additions and stored one turn before.
template <class I, class Tiles, PieceKind K, int N>
[[gnu::always_inline]] inline void add_chunk(typename I::F (&sums)[N], Tiles& tiles,
                                             const TilePieces& pieces) {
  constexpr int kHalves = K.halves ? 2 : 1;
  constexpr int kTurns = kSumTiles / kHalves;  // tiles of this many pieces are under way
  // Two, and no more: loads wait for stores at the same place of another page.
  alignas(64) int32_t integers[2][kHalves][kTileTokens][kPanelRows];
  const auto turn = [&]<int T>(int64_t i) __attribute__((always_inline)) {
    constexpr int kBefore = (T + kTurns - 1) % kTurns;
    if (i < pieces.count) {
      const uint8_t* codes = pieces.unpacked + i * K.bytes();
      tiles.template multiply<T * kHalves, 32 / kHalves>(pieces.x[i].quants, 0, codes);
      if constexpr (K.halves) tiles.template multiply<T * 2 + 1, 16>(pieces.x[i].quants, 16, codes + 256);
      pieces.fetch(i);
    }
    if (i >= 2 && i - 2 < pieces.count) {
      const auto& from = integers[i % 2];
      add_tile<I, K, N>(sums, {&from[0], &from[kHalves - 1]}, pieces.x[i - 2],
                        pieces.unpacked + (i - 2) * K.bytes());
    }
    if (i >= 1 && i - 1 < pieces.count) {
      auto& to = integers[(i + 1) % 2];
      tiles.template store<kBefore * kHalves>(to[0]);
      if constexpr (K.halves) tiles.template store<kBefore * 2 + 1>(to[1]);
    }
  };
  for (int64_t i = 0; i < pieces.count + 2; i += kTurns) {
    [&]<int... T>(std::integer_sequence<int, T...>) __attribute__((always_inline)) {
      (turn.template operator()<T>(i + T), ...);
    }
    (std::make_integer_sequence<int, kTurns>());
  }
}

// A chunk of one unpacked panel by the first N tokens of a tile, of which those that there are are stored.
template <class I, class Tiles, PieceKind K, int N>
void chunk_of_tile(const PanelGemm& gemm, Tiles& tiles, const TilePieces& pieces, const Chunk& chunk,
                   const TilePlace& place) {
  const int64_t tokens = gemm.tokens - place.token < N ? gemm.tokens - place.token : N;
  const int64_t rows = gemm.rows - place.panel * kPanelRows;
  float* out = gemm.out + place.token * gemm.out_stride + place.panel * kPanelRows;
  if (chunk.last) {
    for (int64_t n = 0; n < tokens; ++n) __builtin_prefetch(out + n * gemm.out_stride, 1);
  }
  typename I::F sums[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n)
    sums[n] = chunk.first == 0 ? I::set1(0.0f) : I::load(place.sums + n * kPanelRows);
  add_chunk<I, Tiles, K, N>(sums, tiles, pieces);
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    if (!chunk.last) {
      I::store(place.sums + n * kPanelRows, sums[n]);
    } else if (n < tokens) {
      if (gemm.bias != nullptr)
        sums[n] = I::add(sums[n], I::load_part(gemm.bias + place.panel * kPanelRows, rows));
      I::store_part(out + n * gemm.out_stride, sums[n], rows);
    }
  }
}

// What the calls for one chunk of one or two unpacked panels share.
struct TwoPanels {
  const uint8_t* unpacked;
  int64_t panel, count;
  float* sums;  // of the first panel
  int64_t sums_stride;
  const uint8_t* next;  // of the panels that are unpacked after these; null: none
  int64_t panel_bytes, next_bytes;
};

template <class I, class Tiles, PieceKind K>
void chunk_of_panels(const PanelGemm& gemm, Tiles& tiles, const TwoPanels& two, const Chunk& chunk) {
  for (int64_t token = 0; token < gemm.tokens; token += kTileTokens) {
    const int64_t left = gemm.tokens - token;
    const ActivationTile* x = gemm.tiles + token / kTileTokens * (gemm.cols / 32) + chunk.first;
    for (int64_t r = 0; r < two.count; ++r) {
      const TilePieces pieces{x, two.unpacked + r * kChunkPieces * K.bytes(), chunk.count,
                              token > 0 || two.next == nullptr ? nullptr : two.next + r * two.panel_bytes,
                              two.next_bytes};
      const TilePlace place{two.panel + r, token, two.sums + r * two.sums_stride + token * kPanelRows};
      if (left > 12) {
        chunk_of_tile<I, Tiles, K, 16>(gemm, tiles, pieces, chunk, place);
      } else if (left > 8) {
        chunk_of_tile<I, Tiles, K, 12>(gemm, tiles, pieces, chunk, place);
      } else {
        chunk_of_tile<I, Tiles, K, 8>(gemm, tiles, pieces, chunk, place);
      }
    }
  }
}

// Panels [begin, end), at most kTilePanels, by all tokens.
template <class I, class Tiles, PanelFormat F>
void block_of_panels(const PanelGemm& gemm, Tiles& tiles, int64_t begin, int64_t end) {
  constexpr PieceKind K = kind_of<I, F>();
  alignas(64) uint8_t unpacked[2 * kChunkPieces * K.bytes()];
  alignas(64) float sums[kTilePanels * kMostTiledTokens * kPanelRows];
  const int64_t pieces = gemm.cols / 32;
  const int64_t panel_bytes = F.panel_bytes(gemm.cols);
  const int64_t stride = (gemm.tokens + kTileTokens - 1) / kTileTokens * kSumsPerTile;
  for (int64_t first = 0; first < pieces; first += kChunkPieces) {
    const int64_t count = pieces - first < kChunkPieces ? pieces - first : kChunkPieces;
    const Chunk chunk{first, count, first + count == pieces, F.offset_bits};
    const uint8_t* from = gemm.panels + first / F.pieces * F.super_bytes();
    for (int64_t panel = begin; panel < end; panel += 2) {
      const int64_t both = panel + 1 < end ? 2 : 1;
      for (int64_t r = 0; r < both; ++r)
        unpack_panel<I, F>(unpacked + r * kChunkPieces * K.bytes(), gemm.panels + (panel + r) * panel_bytes,
                           chunk);
      asm volatile("" : : "r"(unpacked) : "memory");  // tile loads do not tell the compiler what they read
      const uint8_t* next = panel + 2 < end ? from + (panel + 2) * panel_bytes
                                            : from + begin * panel_bytes + count / F.pieces * F.super_bytes();
      chunk_of_panels<I, Tiles, K>(
          gemm, tiles,
          {unpacked, panel, both, sums + (panel - begin) * stride, stride,
           panel + 2 < end || !chunk.last ? next : nullptr, panel_bytes, F.super_bytes() / F.pieces},
          chunk);
    }
  }
}

template <class I, class Tiles, DType type>
void gemm_tiles_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  constexpr PieceKind K = kind_of<I, F>();
  static_assert(!K.offset && kChunkPieces % F.pieces == 0);
  Tiles tiles(K.halves);  // configured as long as it lives
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  for (int64_t panel = 0; panel < panels; panel += kTilePanels)
    block_of_panels<I, Tiles, F>(gemm, tiles, panel,
                                 panel + kTilePanels < panels ? panel + kTilePanels : panels);
}

// REQUIRES: gemm.tiles, or what AVX-512 VNNI reads.
template <class I, class Tiles>
void gemm_panels_amx(const PanelGemm& gemm) {
  if (gemm.tiles == nullptr) return avx512_vnni_panels().gemm(gemm);
  with_panel_type(gemm.type, [&]<DType type> { gemm_tiles_of<I, Tiles, type>(gemm); });
}

}  // namespace
}  // namespace sluice::kernels::cpu
