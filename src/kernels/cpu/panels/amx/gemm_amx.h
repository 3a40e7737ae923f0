// GEMMs over panels by matrix tiles: 16 tokens x 16 rows, signed bytes. A tile multiplies a piece of 32 columns (16, where each
// half has a scale) into exact integers, which AVX-512 adds to the sums by the arithmetic of gemm.h; results have the bits of
// every other level. Included by panels_amx.cpp only.
//
// Eight panels at a time are taken by chunks of their columns. Of a chunk two panels are unpacked into the first cache and
// multiplied with all tokens: the chunk's activations and the sums of the chunks before stay in the second cache while the
// panels pass by, and a panel is read once. Sums of a tile stay in registers over a chunk. The additions are what a piece
// costs: three to six vector instructions of floats a token, one a cycle beside tile instructions, which run meanwhile. Lines of
// the output are fetched one by one while the last chunk is added: they lie far apart, and a store would wait for each.
#pragma once

#include <cstdint>

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

// Most pieces of a chunk: two unpacked panels and a tile's activations fit the first cache.
constexpr int64_t kTilePieces = 24;

// The first row, by its panel, and the first token of a tile, its sums of the chunks before, and what is unpacked next.
struct TilePlace {
  int64_t panel, token;
  float* sums;          // [kTileTokens][kPanelRows]
  const uint8_t* next;  // brought by memory meanwhile, `next_bytes` for each piece; null: nothing
  int64_t next_bytes;
};

// The tile instructions in plain loops, for processors without them.
struct ModelTiles {
  explicit ModelTiles(bool /*halves*/) {}
  // out = activations x codes, of the columns from `first` on.
  template <int Half, int Columns>
  void multiply(int32_t (&out)[kTileTokens][kPanelRows], const int8_t (*x)[32], int first,
                const uint8_t* codes) {
    for (int token = 0; token < kTileTokens; ++token) {
      for (int row = 0; row < kPanelRows; ++row) {
        int32_t sum = 0;
        for (int k = 0; k < Columns; ++k)
          sum += x[token][first + k] * static_cast<int8_t>(codes[k / 4 * 64 + row * 4 + k % 4]);
        out[token][row] = sum;
      }
    }
  }
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

// What memory shall bring while pieces are added: a line of the sums' place for each, `next_bytes` of the panel that is
// unpacked next.
struct TileFetch {
  const float* sums;
  int64_t sums_stride;
  const uint8_t* next;  // null: nothing
  int64_t next_bytes;

  [[gnu::always_inline]] void piece() {
    __builtin_prefetch(sums, 1);
    sums += sums_stride;
    if (next == nullptr) return;
    for (const uint8_t* end = next + next_bytes; next < end; next += 64) __builtin_prefetch(next, 0, 2);
  }
};

// The pieces of a chunk that one panel and 16 tokens have.
struct TilePieces {
  const ActivationTile* x;
  const uint8_t* unpacked;
  int64_t count;
};

// Adds the pieces of a chunk to the sums. A tile's integers pass through memory: they are added while the next are multiplied.
template <class I, class Tiles, PieceKind K, int N>
[[gnu::always_inline]] inline void add_chunk(typename I::F (&sums)[N], Tiles& tiles, TilePieces pieces,
                                             TileFetch fetch) {
  alignas(64) int32_t integers[2][K.halves ? 2 : 1][kTileTokens][kPanelRows];
  const auto multiply = [&](auto& to, int i) __attribute__((always_inline)) {
    const uint8_t* codes = pieces.unpacked + i * K.bytes();
    tiles.template multiply<0, K.halves ? 16 : 32>(to[0], pieces.x[i].quants, 0, codes);
    if constexpr (K.halves) tiles.template multiply<1, 16>(to[1], pieces.x[i].quants, 16, codes + 256);
    fetch.piece();
  };
  const auto add = [&](const auto& from, int i) __attribute__((always_inline)) {
    add_tile<I, K, N>(sums, {&from[0], &from[K.halves ? 1 : 0]}, pieces.x[i],
                      pieces.unpacked + i * K.bytes());
  };
  multiply(integers[0], 0);
  for (; pieces.count > 2; pieces.count -= 2, pieces.x += 2, pieces.unpacked += 2 * K.bytes()) {
    multiply(integers[1], 1);
    add(integers[0], 0);
    multiply(integers[0], 2);
    add(integers[1], 1);
  }
  if (pieces.count == 2) multiply(integers[1], 1);
  add(integers[0], 0);
  if (pieces.count == 2) add(integers[1], 1);
}

// A chunk of one unpacked panel by the first N tokens of a tile, of which those that there are are stored. Not inlined: the
// compiler would keep pointers in vector registers, and tiles wait for the port that brings them back.
template <class I, class Tiles, PieceKind K, int N>
[[gnu::noinline]] void chunk_of_tile(const PanelGemm& gemm, Tiles& tiles, const TilePieces& pieces,
                                     const Chunk& chunk, const TilePlace& place) {
  typename I::F sums[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n)
    sums[n] = chunk.first == 0 ? I::set1(0.0f) : I::load(place.sums + n * kPanelRows);
  float* out = gemm.out + place.token * gemm.out_stride + place.panel * kPanelRows;
  add_chunk<I, Tiles, K, N>(sums, tiles, pieces,
                            {chunk.last ? out : place.sums, chunk.last ? gemm.out_stride : kPanelRows,
                             place.next, place.next_bytes});
  const int64_t tokens = gemm.tokens - place.token < N ? gemm.tokens - place.token : N;
  const int64_t rows = gemm.rows - place.panel * kPanelRows;
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
  // The first two tiles fetch a half each of what is unpacked next: where there are no more, memory takes most of their time.
  const int64_t shares = gemm.tokens > kTileTokens ? 2 : 1;
  const int64_t share = chunk.count * two.next_bytes / shares;
  for (int64_t token = 0; token < gemm.tokens; token += kTileTokens) {
    const bool fetching = two.next != nullptr && token < shares * kTileTokens;
    const int64_t left = gemm.tokens - token;
    const ActivationTile* x = gemm.tiles + token / kTileTokens * (gemm.cols / 32) + chunk.first;
    for (int64_t r = 0; r < two.count; ++r) {
      const TilePieces pieces{x, two.unpacked + r * kTilePieces * K.bytes(), chunk.count};
      const TilePlace place{two.panel + r, token, two.sums + r * two.sums_stride + token * kPanelRows,
                            fetching ? two.next + r * two.panel_bytes + token / kTileTokens * share : nullptr,
                            two.next_bytes / shares};
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

// The panels that one call multiplies, and those of them, [begin, end), at most kTilePanels, whose sums are kept.
struct PanelBlock {
  int64_t count, begin, end;

  // Where the panel after `panel` and its neighbour in this chunk begins, or the first of the next chunk or block. Behind the last
  // block lies what the thread's next call multiplies, as a rule.
  template <PanelFormat F>
  const uint8_t* next(const PanelGemm& gemm, const Chunk& chunk, int64_t panel) const {
    const int64_t panel_bytes = F.panel_bytes(gemm.cols);
    const uint8_t* from = gemm.panels + chunk.first / F.pieces * F.super_bytes();
    if (panel + 2 < end) return from + (panel + 2) * panel_bytes;
    if (!chunk.last) return from + begin * panel_bytes + chunk.count / F.pieces * F.super_bytes();
    return gemm.panels + end * panel_bytes;
  }
};

// The panels of a block by all tokens.
template <class I, class Tiles, PanelFormat F>
void block_of_panels(const PanelGemm& gemm, Tiles& tiles, const PanelBlock& block) {
  constexpr PieceKind K = kind_of<I, F>();
  alignas(64) uint8_t unpacked[2 * kTilePieces * K.bytes()];
  alignas(64) float sums[kTilePanels * kMostTiledTokens * kPanelRows];
  const int64_t pieces = gemm.cols / 32;
  const int64_t panel_bytes = F.panel_bytes(gemm.cols);
  const int64_t stride = (gemm.tokens + kTileTokens - 1) / kTileTokens * kSumsPerTile;
  const int64_t most = even_chunk(F, pieces, kTilePieces);
  for (int64_t first = 0; first < pieces; first += most) {
    const int64_t count = pieces - first < most ? pieces - first : most;
    const Chunk chunk{first, count, first + count == pieces, F.offset_bits};
    for (int64_t panel = block.begin; panel < block.end; panel += 2) {
      const int64_t both = panel + 1 < block.end ? 2 : 1;
      for (int64_t r = 0; r < both; ++r)
        unpack_panel<I, F>(unpacked + r * kTilePieces * K.bytes(), gemm.panels + (panel + r) * panel_bytes,
                           chunk);
      const TwoPanels two{unpacked,    panel,
                          both,        sums + (panel - block.begin) * stride,
                          stride,      block.next<F>(gemm, chunk, panel),
                          panel_bytes, F.super_bytes() / F.pieces};
      chunk_of_panels<I, Tiles, K>(gemm, tiles, two, chunk);
    }
  }
}

template <class I, class Tiles, DType type>
void gemm_tiles_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  constexpr PieceKind K = kind_of<I, F>();
  static_assert(!K.offset && kTilePieces % F.pieces == 0);
  Tiles tiles(K.halves);  // configured as long as it lives
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  for (int64_t panel = 0; panel < panels; panel += kTilePanels)
    block_of_panels<I, Tiles, F>(
        gemm, tiles, {panels, panel, panel + kTilePanels < panels ? panel + kTilePanels : panels});
}

// REQUIRES: gemm.tiles, or what AVX-512 VNNI reads.
template <class I, class Tiles>
void gemm_panels_amx(const PanelGemm& gemm) {
  if (gemm.tiles == nullptr) return avx512_vnni_panels().gemm(gemm);
  with_panel_type(gemm.type, [&]<DType type> { gemm_tiles_of<I, Tiles, type>(gemm); });
}

}  // namespace
}  // namespace sluice::kernels::cpu
