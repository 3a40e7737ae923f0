// GEMMs over panels by matrix tiles: 16 tokens x 16 rows, signed bytes. A tile multiplies a piece of 32 columns (16, where each
// half has a scale) into exact integers, which AVX-512 adds to the sums by the arithmetic of gemm.h; results have the bits of
// every other level. Included by panels_amx.cpp only.
//
// Columns are taken in chunks, and for each chunk two panels at a time are unpacked into the first cache and multiplied with
// all tokens: the chunk's activations stay in the second cache while the panels pass by, and a panel is read once. Sums of a
// tile stay in registers over a chunk. The additions are what a piece costs: three to six vector instructions a token.
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

// The first row, by its panel, and the first token of a tile.
struct TilePlace {
  int64_t panel, token;
};

// Pieces multiplied in one go: two such groups have their sums in tile registers at a time.
constexpr int kGroup = 2;

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
  int32_t sums_[2 * kGroup][kTileTokens][kPanelRows];
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
};

// Multiplies the tiles of group `Set` (0 or 1) that begins at piece i: whole pieces, or all first or all second halves.
template <class Tiles, PieceKind K, int Set>
[[gnu::always_inline]] inline void multiply_group(Tiles& tiles, const TilePieces& pieces, int64_t i,
                                                  int half) {
  const auto one = [&]<int G>() __attribute__((always_inline)) {
    if (i + G >= pieces.count) return;
    const uint8_t* codes = pieces.unpacked + (i + G) * K.bytes() + half * 256;
    tiles.template multiply<Set * kGroup + G, K.halves ? 16 : 32>(pieces.x[i + G].quants, half * 16, codes);
  };
  [&]<int... G>(std::integer_sequence<int, G...>) __attribute__((always_inline)) {
    (one.template operator()<G>(), ...);
  }
  (std::make_integer_sequence<int, kGroup>());
}

template <class Tiles, int Set>
[[gnu::always_inline]] inline void store_group(Tiles& tiles, int32_t (*out)[kTileTokens][kPanelRows]) {
  [&]<int... G>(std::integer_sequence<int, G...>) __attribute__((always_inline)) {
    (tiles.template store<Set * kGroup + G>(out[G]), ...);
  }
  (std::make_integer_sequence<int, kGroup>());
}

// Adds the pieces of a chunk to the sums. Stores of tiles hold up tile loads behind them, and a tile takes some 50 cycles: the
// next group is multiplied before this one is stored, and this one's additions follow.
template <class I, class Tiles, PieceKind K, int N>
[[gnu::always_inline]] inline void add_chunk(typename I::F (&sums)[N], Tiles& tiles,
                                             const TilePieces& pieces) {
  alignas(64) int32_t integers[2][kGroup][kTileTokens][kPanelRows];
  const auto add = [&](int64_t i, int set) __attribute__((always_inline)) {
    for (int64_t g = 0; g < kGroup && i + g < pieces.count; ++g)
      add_tile<I, K, N>(sums, {&integers[set][g], &integers[1][g]}, pieces.x[i + g],
                        pieces.unpacked + (i + g) * K.bytes());
  };
  multiply_group<Tiles, K, 0>(tiles, pieces, 0, 0);
  if constexpr (K.halves) {
    for (int64_t i = 0; i < pieces.count; i += kGroup) {
      multiply_group<Tiles, K, 1>(tiles, pieces, i, 1);
      store_group<Tiles, 0>(tiles, integers[0]);
      multiply_group<Tiles, K, 0>(tiles, pieces, i + kGroup, 0);
      store_group<Tiles, 1>(tiles, integers[1]);
      add(i, 0);
    }
  } else {
    for (int64_t i = 0; i < pieces.count; i += 2 * kGroup) {
      multiply_group<Tiles, K, 1>(tiles, pieces, i + kGroup, 0);
      store_group<Tiles, 0>(tiles, integers[0]);
      add(i, 0);
      multiply_group<Tiles, K, 0>(tiles, pieces, i + 2 * kGroup, 0);
      store_group<Tiles, 1>(tiles, integers[1]);
      add(i + kGroup, 1);
    }
  }
}

// A chunk of one unpacked panel by the first N tokens of a tile, of which those that there are are stored.
template <class I, class Tiles, PieceKind K, int N>
void chunk_of_tile(const PanelGemm& gemm, Tiles& tiles, const uint8_t* unpacked, const Chunk& chunk,
                   TilePlace place) {
  const auto [panel, token] = place;
  const int64_t tokens = gemm.tokens - token < N ? gemm.tokens - token : N;
  const ActivationTile* x = gemm.tiles + token / kTileTokens * (gemm.cols / 32) + chunk.first;
  const int64_t rows = gemm.rows - panel * kPanelRows;
  float* out = gemm.out + token * gemm.out_stride + panel * kPanelRows;
  typename I::F sums[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n)
    sums[n] = chunk.first == 0 || n >= tokens ? I::set1(0.0f) : I::load_part(out + n * gemm.out_stride, rows);
  add_chunk<I, Tiles, K, N>(sums, tiles, {x, unpacked, chunk.count});
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    if (n >= tokens) continue;
    if (chunk.last && gemm.bias != nullptr)
      sums[n] = I::add(sums[n], I::load_part(gemm.bias + panel * kPanelRows, rows));
    I::store_part(out + n * gemm.out_stride, sums[n], rows);
  }
}

// All tokens of two unpacked panels, or of one where rows end.
template <class I, class Tiles, PieceKind K>
void chunk_of_panels(const PanelGemm& gemm, Tiles& tiles, const uint8_t* unpacked, const Chunk& chunk,
                     int64_t panel) {
  const int64_t count = (panel + 1) * kPanelRows < gemm.rows ? 2 : 1;
  for (int64_t token = 0; token < gemm.tokens; token += kTileTokens) {
    const int64_t left = gemm.tokens - token;
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* codes = unpacked + r * kChunkPieces * K.bytes();
      if (left > 12) {
        chunk_of_tile<I, Tiles, K, 16>(gemm, tiles, codes, chunk, {panel + r, token});
      } else if (left > 8) {
        chunk_of_tile<I, Tiles, K, 12>(gemm, tiles, codes, chunk, {panel + r, token});
      } else {
        chunk_of_tile<I, Tiles, K, 8>(gemm, tiles, codes, chunk, {panel + r, token});
      }
    }
  }
}

template <class I, class Tiles, DType type>
void gemm_tiles_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  constexpr PieceKind K = kind_of<I, F>();
  static_assert(!K.offset);
  Tiles tiles(K.halves);  // configured as long as it lives
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  const int64_t pieces = gemm.cols / 32;
  alignas(64) uint8_t unpacked[2 * kChunkPieces * K.bytes()];
  for (int64_t first = 0; first < pieces; first += kChunkPieces) {
    const int64_t count = pieces - first < kChunkPieces ? pieces - first : kChunkPieces;
    const Chunk chunk{first, count, first + count == pieces, F.offset_bits};
    for (int64_t panel = 0; panel < panels; panel += 2) {
      for (int64_t r = 0; r < 2 && panel + r < panels; ++r)
        unpack_panel<I, F>(unpacked + r * kChunkPieces * K.bytes(),
                           gemm.panels + (panel + r) * F.panel_bytes(gemm.cols), chunk);
      asm volatile("" : : "r"(unpacked) : "memory");  // tile loads do not tell the compiler what they read
      chunk_of_panels<I, Tiles, K>(gemm, tiles, unpacked, chunk, panel);
    }
  }
}

// REQUIRES: gemm.tiles, or what AVX-512 VNNI reads.
template <class I, class Tiles>
void gemm_panels_amx(const PanelGemm& gemm) {
  if (gemm.tiles == nullptr) return avx512_vnni_panels().gemm(gemm);
  with_panel_type(gemm.type, [&]<DType type> { gemm_tiles_of<I, Tiles, type>(gemm); });
}

}  // namespace
}  // namespace sluice::kernels::cpu
