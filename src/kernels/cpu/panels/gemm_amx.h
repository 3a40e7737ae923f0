// GEMMs over panels by matrix tiles: 16 tokens x 16 rows, signed bytes. A tile multiplies a piece of 32 columns (16, where each
// half has a scale) into exact integers, which AVX-512 adds to the sums by the arithmetic of gemm.h; results have the bits of
// every other level. Included by panels_amx.cpp only.
//
// Columns are taken in chunks, and for each chunk two panels at a time are unpacked into the first cache and multiplied with
// all tokens: the chunk's activations stay in the second cache while the panels pass by, and a panel is read once. Sums of a
// tile stay in registers over a chunk. Tiles are multiplied two pieces ahead of the additions that need them, since a tile
// takes some 50 cycles. The additions are what a piece costs: three to six vector instructions a token.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/gemm.h"

namespace sluice::kernels::cpu {
namespace {

// Integer sums of a piece: [half][token][row].
template <PieceKind K>
using PieceSums = int32_t[K.halves ? 2 : 1][kTileTokens][kPanelRows];

// The tile instructions in plain loops, for processors without them.
struct ModelTiles {
  explicit ModelTiles(bool /*halves*/) {}
  template <int Set, int Columns>
  static void multiply(int32_t (&out)[kTileTokens][kPanelRows], const int8_t (*x)[32], int first,
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

// Set: which of the two sets of tile registers.
template <class Tiles, PieceKind K, int Set>
[[gnu::always_inline]] inline void multiply_piece(PieceSums<K>& out, const ActivationTile& x,
                                                  const uint8_t* unpacked) {
  if constexpr (K.halves) {
    Tiles::template multiply<Set, 16>(out[0], x.quants, 0, unpacked);
    Tiles::template multiply<Set, 16>(out[1], x.quants, 16, unpacked + 256);
  } else {
    Tiles::template multiply<Set, 32>(out[0], x.quants, 0, unpacked);
  }
}

// What add_piece_sum reads of a token.
struct TokenScales {
  float scale, sum, half_sums[2];
};

template <class I, PieceKind K, int N>
[[gnu::always_inline]] inline void add_tile(typename I::F (&sums)[N], const PieceSums<K>& integers,
                                            const ActivationTile& x, const uint8_t* unpacked) {
  const PieceScales<I> s = unpacked_scales<I, K>(unpacked, 0);
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    typename I::S quads[2];
    quads[0] = I::panel_sums(integers[0][n]);
    if constexpr (K.halves) quads[1] = I::panel_sums(integers[1][n]);
    const TokenScales token{x.scale[n], x.sum[n], {x.half_sums[0][n], x.half_sums[1][n]}};
    sums[n] = add_piece_sum<I, K>(sums[n], quads, s, token);
  }
}

// A chunk of one unpacked panel by the first N tokens of a tile, of which `tokens` are stored.
template <class I, class Tiles, PieceKind K, int N>
void chunk_of_tile(const PanelGemm& gemm, const uint8_t* unpacked, const Chunk& chunk, int64_t panel,
                   int64_t token) {
  const int64_t tokens = gemm.tokens - token < N ? gemm.tokens - token : N;
  const ActivationTile* x = gemm.tiles + token / kTileTokens * (gemm.cols / 32) + chunk.first;
  const int64_t rows = gemm.rows - panel * kPanelRows;
  float* out = gemm.out + token * gemm.out_stride + panel * kPanelRows;
  typename I::F sums[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n)
    sums[n] = chunk.first == 0 || n >= tokens ? I::set1(0.0f) : load_rows<I>(out + n * gemm.out_stride, rows);
  alignas(64) PieceSums<K> integers[4];
  const auto multiply_pair = [&](int64_t i) __attribute__((always_inline)) {
    if (i < chunk.count) multiply_piece<Tiles, K, 0>(integers[i % 4], x[i], unpacked + i * K.bytes());
    if (i + 1 < chunk.count)
      multiply_piece<Tiles, K, 1>(integers[(i + 1) % 4], x[i + 1], unpacked + (i + 1) * K.bytes());
  };
  multiply_pair(0);
  for (int64_t i = 0; i < chunk.count; i += 2) {
    multiply_pair(i + 2);
    add_tile<I, K, N>(sums, integers[i % 4], x[i], unpacked + i * K.bytes());
    if (i + 1 < chunk.count)
      add_tile<I, K, N>(sums, integers[(i + 1) % 4], x[i + 1], unpacked + (i + 1) * K.bytes());
  }
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    if (n >= tokens) continue;
    if (chunk.last && gemm.bias != nullptr)
      sums[n] = I::add(sums[n], load_rows<I>(gemm.bias + panel * kPanelRows, rows));
    store_rows<I>(out + n * gemm.out_stride, sums[n], rows);
  }
}

// All tokens of two unpacked panels, or of one where rows end.
template <class I, class Tiles, PieceKind K>
void chunk_of_panels(const PanelGemm& gemm, const uint8_t* unpacked, const Chunk& chunk, int64_t panel) {
  const int64_t count = (panel + 1) * kPanelRows < gemm.rows ? 2 : 1;
  for (int64_t token = 0; token < gemm.tokens; token += kTileTokens) {
    const int64_t left = gemm.tokens - token;
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* codes = unpacked + r * kChunkPieces * K.bytes();
      if (left > 12) {
        chunk_of_tile<I, Tiles, K, 16>(gemm, codes, chunk, panel + r, token);
      } else if (left > 8) {
        chunk_of_tile<I, Tiles, K, 12>(gemm, codes, chunk, panel + r, token);
      } else {
        chunk_of_tile<I, Tiles, K, 8>(gemm, codes, chunk, panel + r, token);
      }
    }
  }
}

template <class I, class Tiles, DType type>
void gemm_tiles_of(const PanelGemm& gemm) {
  constexpr PanelFormat F = panel_format(type);
  constexpr PieceKind K = kind_of<I, F>();
  static_assert(!K.offset);
  [[maybe_unused]] const Tiles configured(K.halves);  // as long as it lives
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
      chunk_of_panels<I, Tiles, K>(gemm, unpacked, chunk, panel);
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
