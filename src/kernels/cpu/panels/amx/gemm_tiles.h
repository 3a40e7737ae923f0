// GEMMs over panels in rows by matrix tiles of bf16, for every number of tokens. Included by tiles_amx.cpp
// only.
//
// Weights lie as tiles of 16 rows by 32 columns. Activations are rounded to bf16, and what that rounding lost is multiplied
// too. Sums are f32 and stay in tile registers, or pass through memory unchanged.
//
// A sum takes its columns 32 at a time, in order. Within 32 the instruction adds the even and the odd columns up in two chains
// of fused multiply-adds from zero, and adds both to the sum. The tokens beside it in a tile do not matter, so one token has
// the bits that it has among 512. Levels without such tiles give other bits.
//
// One tile of tokens: panel after panel over all columns, one stream from memory. Two tiles: two panels at a time. Many: eight
// panels at a time, columns in chunks of 512. Of a chunk two panels stay in the first cache and are multiplied with all tokens,
// whose share of the chunk stays in the second cache. Bytes moved: those of the panels.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/panels/kernels.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kTileWords = 16 * 32;
constexpr int64_t kTileSums = 16 * 16;
constexpr int64_t kChunkTiles = 16;
constexpr int64_t kPanelBlock = 8;
constexpr int64_t kTilesAhead = 6;

// What the calls of one GEMM share.
struct TileWork {
  const TileGemm& gemm;
  int64_t pieces;
  int64_t width;

  const uint16_t* weights(int64_t panel, int64_t piece) const {
    return reinterpret_cast<const uint16_t*>(gemm.panels) + (panel * pieces + piece) * kTileWords;
  }
};

// One or two panels by one or two tiles of tokens, pieces [first, last).
struct TileBlock {
  int64_t panel, tile;
  int64_t first, last;
  bool fresh;   // the panels come from memory
  float* sums;  // [2] panels, `stride` apart, of [2] tiles
  int64_t stride;
};

// Brings a quarter of the weights that come kTilesAhead pieces later into the second cache. In one go, or into the first cache, two
// cores read a tenth less in a second.
template <int P>
[[gnu::always_inline]] inline void fetch_quarter(const TileWork& work, const TileBlock& block, int64_t piece,
                                                 int quarter) {
  if (!block.fresh) return;
  for (int p = 0; p < P; ++p) {
    const uint16_t* ahead = work.weights(block.panel + p, piece + kTilesAhead) + quarter * 4 * 32;
    for (int line = 0; line < 4; ++line) __builtin_prefetch(ahead + 32 * line, 0, 2);
  }
}

// Sum tiles 0 to 3: [panel][tokens]; 4 and 5: weights; 6 and 7: activations.
template <class Tiles, int P, int T>
[[gnu::always_inline]] inline void multiply_tiles(Tiles& tiles, const uint16_t* const (&x)[T], int64_t at,
                                                  int64_t width) {
  tiles.template load<6>(x[0] + at, 4 * width);
  tiles.template dot<0, 4, 6>();
  if constexpr (P > 1) tiles.template dot<2, 5, 6>();
  if constexpr (T > 1) {
    tiles.template load<7>(x[T - 1] + at, 4 * width);
    tiles.template dot<1, 4, 7>();
    if constexpr (P > 1) tiles.template dot<3, 5, 7>();
  }
}

template <class Tiles, int P, int T>
[[gnu::always_inline]] inline void begin_sums(Tiles& tiles, const TileBlock& block) {
  const auto one = [&]<int C>() __attribute__((always_inline)) {
    if constexpr (C / 2 < P && C % 2 < T) {
      if (block.first == 0) return tiles.template zero<C>();
      tiles.template load<C>(block.sums + C / 2 * block.stride + C % 2 * kTileSums, 64);
    }
  };
  (one.template operator()<0>(), one.template operator()<1>(), one.template operator()<2>(),
   one.template operator()<3>());
}

template <class Tiles, int P, int T>
[[gnu::always_inline]] inline void end_sums(Tiles& tiles, const TileBlock& block) {
  const auto one = [&]<int C>() __attribute__((always_inline)) {
    if constexpr (C / 2 < P && C % 2 < T)
      tiles.template store<C>(block.sums + C / 2 * block.stride + C % 2 * kTileSums, 64);
  };
  (one.template operator()<0>(), one.template operator()<1>(), one.template operator()<2>(),
   one.template operator()<3>());
}

template <class Tiles, int P, int T>
void multiply_block(Tiles& tiles, const TileWork& work, const TileBlock& block) {
  const TokenTiles& from = work.gemm.x;
  const uint16_t *high[T], *low[T];
  for (int t = 0; t < T; ++t) {
    const int64_t offset = TokenTiles::offset(block.tile + t, 0, work.pieces, work.width);
    high[t] = from.high + offset;
    low[t] = from.low + offset;
  }
  begin_sums<Tiles, P, T>(tiles, block);
  for (int64_t piece = block.first; piece < block.last; ++piece) {
    fetch_quarter<P>(work, block, piece, 0);
    tiles.template load<4>(work.weights(block.panel, piece), 64);
    if constexpr (P > 1) tiles.template load<5>(work.weights(block.panel + 1, piece), 64);
    const int64_t at = piece * 32 * work.width;
    fetch_quarter<P>(work, block, piece, 1);
    multiply_tiles<Tiles, P, T>(tiles, high, at, work.width);
    fetch_quarter<P>(work, block, piece, 2);
    multiply_tiles<Tiles, P, T>(tiles, low, at, work.width);
    fetch_quarter<P>(work, block, piece, 3);
  }
  end_sums<Tiles, P, T>(tiles, block);
}

template <class Tiles>
void multiply_any(Tiles& tiles, const TileWork& work, const TileBlock& block, bool two_panels,
                  bool two_tiles) {
  if (two_panels && two_tiles) return multiply_block<Tiles, 2, 2>(tiles, work, block);
  if (two_panels) return multiply_block<Tiles, 2, 1>(tiles, work, block);
  if (two_tiles) return multiply_block<Tiles, 1, 2>(tiles, work, block);
  multiply_block<Tiles, 1, 1>(tiles, work, block);
}

// Sums [row][token] of one panel and one tile of tokens to their places, with the bias.
inline void write_out(const TileGemm& gemm, const float* sums, int64_t panel, int64_t tile) {
  using I = PanelAvx512Vnni;
  const int64_t first = panel * kPanelRows;
  const auto rows = static_cast<__mmask16>(gemm.rows - first >= 16 ? 0xffff : (1 << (gemm.rows - first)) - 1);
  const int64_t tokens = gemm.tokens - tile * kTileTokens;
  I::F square[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) square[i] = I::load(sums + 16 * i);
  I::transpose(square);
  I::F bias = I::set1(0.0f);
  if (gemm.bias != nullptr) bias = _mm512_maskz_loadu_ps(rows, gemm.bias + first);
  float* out = gemm.out + tile * kTileTokens * gemm.out_stride + first;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i >= tokens) break;
    _mm512_mask_storeu_ps(out + i * gemm.out_stride, rows,
                          gemm.bias == nullptr ? square[i] : I::add(square[i], bias));
  }
}

template <class Tiles>
void few_tokens(Tiles& tiles, const TileWork& work, int64_t panels) {
  alignas(64) float sums[4 * kTileSums] = {};
  const int64_t count = TokenTiles::count(work.gemm.tokens);
  const int64_t at_once = count > 1 ? 2 : 1;
  for (int64_t panel = 0; panel < panels; panel += at_once) {
    const bool two = at_once > 1 && panel + 1 < panels;
    multiply_any(tiles, work, {panel, 0, 0, work.pieces, true, sums, 2 * kTileSums}, two, count > 1);
    for (int64_t i = 0; i < (two ? 4 : 2); ++i) {
      if (i % 2 < count) write_out(work.gemm, sums + i * kTileSums, panel + i / 2, i % 2);
    }
  }
}

// Fetches the lines that write_out writes to.
inline void fetch_out(const TileGemm& gemm, int64_t panel, int64_t tile) {
  const int64_t tokens = gemm.tokens - tile * kTileTokens;
  const float* out = gemm.out + tile * kTileTokens * gemm.out_stride + panel * kPanelRows;
  for (int64_t i = 0; i < kTileTokens && i < tokens; ++i) __builtin_prefetch(out + i * gemm.out_stride, 1);
}

// One or two panels, from block.panel on, by all tokens, the pieces of one chunk. Tiles are written out beside the
// multiplications of the next ones.
template <class Tiles>
void chunk_of_tokens(Tiles& tiles, const TileWork& work, TileBlock block, int64_t panels) {
  const int64_t count = TokenTiles::count(work.gemm.tokens);
  float* const sums = block.sums;
  for (int64_t tile = 0; tile < count; tile += 2) {
    const int64_t both = tile + 1 < count ? 2 : 1;
    block.tile = tile;
    block.fresh = tile == 0;
    block.sums = sums + tile * kTileSums;
    const bool done = block.last == work.pieces;
    for (int64_t i = 0; done && i < panels * both; ++i)
      fetch_out(work.gemm, block.panel + i / both, tile + i % both);
    multiply_any(tiles, work, block, panels > 1, both > 1);
    for (int64_t i = 0; done && i < panels * both; ++i)
      write_out(work.gemm, block.sums + i / both * block.stride + i % both * kTileSums,
                block.panel + i / both, tile + i % both);
  }
}

template <class Tiles>
void many_tokens(Tiles& tiles, const TileWork& work, int64_t begin, int64_t end) {
  constexpr int64_t kMostTiles = kMostTiledTokens / kTileTokens;
  alignas(64) float sums[kPanelBlock * kMostTiles * kTileSums];
  const int64_t stride = TokenTiles::count(work.gemm.tokens) * kTileSums;  // of a panel
  for (int64_t first = 0; first < work.pieces; first += kChunkTiles) {
    const int64_t last = first + kChunkTiles < work.pieces ? first + kChunkTiles : work.pieces;
    for (int64_t panel = begin; panel < end; panel += 2)
      chunk_of_tokens(tiles, work, {panel, 0, first, last, true, sums + (panel - begin) * stride, stride},
                      panel + 1 < end ? 2 : 1);
  }
}

template <class Tiles>
void gemm_by_tiles(const TileGemm& gemm) {
  const TileWork work{gemm, (gemm.cols + 31) / 32, gemm.width};
  Tiles tiles(16, static_cast<int>(gemm.width));  // configured as long as it lives
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  if (gemm.tokens <= 2 * kTileTokens) return few_tokens(tiles, work, panels);
  for (int64_t panel = 0; panel < panels; panel += kPanelBlock)
    many_tokens(tiles, work, panel, panel + kPanelBlock < panels ? panel + kPanelBlock : panels);
}

}  // namespace
}  // namespace sluice::kernels::cpu
