// GEMMs over panels in tiles by matrix tiles of bf16, for every number of tokens. Included by tiles_amx.cpp only.
//
// Weights are right factors: pairs of 32 columns by 16 rows. Activations are left ones, tokens by 32 columns: rounded to bf16, and
// what that rounding lost again as bf16. Sums of both are f32, stay in tile registers or pass through memory unchanged, and are
// added at the end.
//
// A sum takes its columns 32 at a time, in order. Within 32 the instruction adds the even and the odd columns up in two chains
// of fused multiply-adds from zero, and adds both to the sum. The tokens beside it in a tile do not matter, so one token has
// the bits that it has among 512. Levels without such tiles give other bits.
//
// Up to eight tokens: both numbers of all are rows of one tile, so that a piece of weights takes two loads and one multiplication.
// Where a neighbour shares the core, several loads for a multiplication take up to five times as long as in quiet, and these
// hardly. Up to one tile of tokens: panel after panel over all columns, one stream from memory. Many: 16 panels by up to 256
// tokens at a time, columns in chunks of 512. Of a chunk two panels stay in the first cache and are multiplied with all tokens,
// whose share of the chunk stays in the second cache, while the next two come from memory. Bytes moved: those of the panels, once
// for every 256 tokens. Two cores of an Emerald Rapids read 90 to 98 % of what they read without arithmetic, for up to 8 tokens.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/panels/kernels.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kTileWords = 16 * 32;
constexpr int64_t kTileSums = 16 * 16;
constexpr int64_t kBothSums = 2 * kTileSums;  // of high and of low
constexpr int64_t kChunkTiles = 16;
constexpr int64_t kPanelBlock = 16;
constexpr int64_t kPassTokens = 256;
constexpr int64_t kTilesAhead = 6;

// What the calls of one GEMM share.
struct TileWork {
  const TileGemm& gemm;
  int64_t pieces;
  int64_t width;

  const uint16_t* weights(int64_t panel, int64_t piece) const {
    return reinterpret_cast<const uint16_t*>(gemm.panels) + (panel * pieces + piece) * kTileWords;
  }
  const uint16_t* tokens(int64_t tile, int64_t piece) const {
    return gemm.x.words + TokenTiles::offset(tile, piece, pieces, width);
  }
};

// Weights that are brought into the second cache beside multiplications, `lines` with each piece from each of one or two panels.
// In one go two cores read a tenth less in a second, and into the first cache alone too.
struct TileFetch {
  const uint16_t* at;
  int64_t panel_words;  // between the two
  int64_t lines = 0;
  bool streams =
      false;  // what comes is multiplied kTilesAhead pieces later, and goes on to the first cache two before

  // A quarter of what comes with one piece.
  template <int P>
  [[gnu::always_inline]] void quarter(int index) const {
    constexpr int64_t kBehind = (kTilesAhead - 2) * kTileWords;
    for (int64_t line = lines * index / 4; line < lines * (index + 1) / 4; ++line) {
      for (int p = 0; p < P; ++p) __builtin_prefetch(at + p * panel_words + 32 * line, 0, 2);
      if (P == 1 && streams) __builtin_prefetch(at - kBehind + 32 * line);
    }
  }
};

// One or two panels by one tile of tokens, pieces [first, last).
struct TileBlock {
  int64_t panel, tile;
  int64_t first, last;
  float* sums;  // high and low of the first panel, `stride` behind them those of the second
  int64_t stride;
  TileFetch fetch;
};

// Calls one<C>(its place) for the tiles of sums, high and low of each panel.
template <int P, class One>
[[gnu::always_inline]] inline void for_sums(const TileBlock& block, const One& one) {
  one.template operator()<0>(block.sums);
  one.template operator()<1>(block.sums + kTileSums);
  if constexpr (P > 1) {
    one.template operator()<2>(block.sums + block.stride);
    one.template operator()<3>(block.sums + block.stride + kTileSums);
  }
}

// Tiles 0 to 3: sums; 4 and 5: activations, high and low; 6 and 7: weights.
template <class Tiles, int P>
void multiply_block(Tiles& tiles, const TileWork& work, const TileBlock& block) {
  for_sums<P>(
      block, [&]<int C>(float* sums) __attribute__((always_inline)) {
        if (block.first == 0) return tiles.template zero<C>();
        tiles.template load<C>(sums, 64);
      });
  TileFetch fetch = block.fetch;
  for (int64_t piece = block.first; piece < block.last; ++piece, fetch.at += 32 * fetch.lines) {
    const uint16_t* x = work.tokens(block.tile, piece);
    fetch.quarter<P>(0);
    tiles.template load<6>(work.weights(block.panel, piece), 64);
    tiles.template load<4>(x, 64);
    fetch.quarter<P>(1);
    tiles.template dot<0, 4, 6>();
    tiles.template load<5>(x + 32 * work.width, 64);
    fetch.quarter<P>(2);
    tiles.template dot<1, 5, 6>();
    if constexpr (P > 1) {
      tiles.template load<7>(work.weights(block.panel + 1, piece), 64);
      tiles.template dot<2, 4, 7>();
      tiles.template dot<3, 5, 7>();
    }
    fetch.quarter<P>(3);
  }
  for_sums<P>(
      block, [&]<int C>(float* sums) __attribute__((always_inline)) { tiles.template store<C>(sums, 64); });
}

// Sums of one panel and a tile of tokens, [token][row] of high and `low` floats behind it of low, to their places, with the bias.
inline void write_out(const TileGemm& gemm, const float* sums, int64_t low, int64_t panel, int64_t tile) {
  const int64_t first = panel * kPanelRows;
  const auto rows = static_cast<__mmask16>(gemm.rows - first >= 16 ? 0xffff : (1 << (gemm.rows - first)) - 1);
  const int64_t left = gemm.tokens - tile * kTileTokens, tokens = left < kTileTokens ? left : kTileTokens;
  float* out = gemm.out + tile * kTileTokens * gemm.out_stride + first;
  for (int64_t i = 0; i < tokens; ++i, sums += kPanelRows, out += gemm.out_stride) {
    __m512 sum = _mm512_add_ps(_mm512_load_ps(sums), _mm512_load_ps(sums + low));
    if (gemm.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(rows, gemm.bias + first));
    _mm512_mask_storeu_ps(out, rows, sum);
  }
}

// Tokens whose high and low are rows of one tile.
constexpr int64_t kMergedTokens = kTileTokens / 2;

// One panel by the only tile of tokens, whose high and low are rows of it.
template <class Tiles>
void multiply_merged(Tiles& tiles, const TileWork& work, int64_t panel, float* sums) {
  tiles.template zero<0>();
  for (int64_t piece = 0; piece < work.pieces; ++piece) {
    const uint16_t* weights = work.weights(panel, piece);
    const TileFetch fetch{weights + kTilesAhead * kTileWords, 0, kTileWords / 32, true};
    fetch.quarter<1>(0);
    tiles.template load<6>(weights, 64);
    fetch.quarter<1>(1);
    tiles.template load<4>(work.tokens(0, piece), 64);
    fetch.quarter<1>(2);
    tiles.template dot<0, 4, 6>();
    fetch.quarter<1>(3);
  }
  tiles.template store<0>(sums, 64);
}

// At most one tile of tokens.
template <class Tiles>
void few_tokens(Tiles& tiles, const TileWork& work, int64_t panels) {
  alignas(64) float sums[kBothSums];
  const bool merged = work.width <= kMergedTokens;
  for (int64_t panel = 0; panel < panels; ++panel) {
    if (merged) {
      multiply_merged(tiles, work, panel, sums);
    } else {
      const TileFetch fetch{work.weights(panel, kTilesAhead), 0, kTileWords / 32, true};
      multiply_block<Tiles, 1>(tiles, work, {panel, 0, 0, work.pieces, sums, 0, fetch});
    }
    write_out(work.gemm, sums, merged ? work.width * kPanelRows : kTileSums, panel, 0);
  }
}

// Fetches the lines that write_out writes to.
inline void fetch_out(const TileGemm& gemm, int64_t panel, int64_t tile) {
  const int64_t tokens = gemm.tokens - tile * kTileTokens;
  const float* out = gemm.out + tile * kTileTokens * gemm.out_stride + panel * kPanelRows;
  for (int64_t i = 0; i < kTileTokens && i < tokens; ++i) __builtin_prefetch(out + i * gemm.out_stride, 1);
}

// One or two panels, from block.panel on, by all tokens, the pieces of one chunk, while the chunk `next` comes. Tiles are written
// out beside the multiplications of the next ones.
template <class Tiles>
void chunk_of_tokens(Tiles& tiles, const TileWork& work, TileBlock block, int64_t panels,
                     const uint16_t* next) {
  constexpr int64_t kChunkLines = kChunkTiles * kTileWords / 32;
  const int64_t count = TokenTiles::count(work.gemm.tokens);
  const int64_t lines = (kChunkTiles + count - 1) / count;  // with each piece
  float* const sums = block.sums;
  for (int64_t tile = 0; tile < count; ++tile) {
    const int64_t fetched = tile * lines * kChunkTiles;
    block.tile = tile;
    block.sums = sums + tile * kBothSums;
    block.fetch = {next + 32 * fetched, work.pieces * kTileWords, fetched < kChunkLines ? lines : 0};
    const bool done = block.last == work.pieces;
    for (int64_t i = 0; done && i < panels; ++i) fetch_out(work.gemm, block.panel + i, tile);
    if (panels > 1) {
      multiply_block<Tiles, 2>(tiles, work, block);
    } else {
      multiply_block<Tiles, 1>(tiles, work, block);
    }
    for (int64_t i = 0; done && i < panels; ++i)
      write_out(work.gemm, block.sums + i * block.stride, kTileSums, block.panel + i, tile);
  }
}

// Panels [begin, end), at most kPanelBlock.
template <class Tiles>
void many_tokens(Tiles& tiles, const TileWork& work, int64_t begin, int64_t end) {
  alignas(64) float sums[kPanelBlock * kPassTokens / kTileTokens * kBothSums];
  const int64_t stride = TokenTiles::count(work.gemm.tokens) * kBothSums;  // of a panel
  for (int64_t first = 0; first < work.pieces; first += kChunkTiles) {
    const int64_t last = first + kChunkTiles < work.pieces ? first + kChunkTiles : work.pieces;
    for (int64_t panel = begin; panel < end; panel += 2) {
      const uint16_t* next = panel + 2 < end      ? work.weights(panel + 2, first)
                             : last < work.pieces ? work.weights(begin, last)
                                                  : work.weights(end, 0);
      const TileBlock block{panel, 0, first, last, sums + (panel - begin) * stride, stride, {}};
      chunk_of_tokens(tiles, work, block, panel + 1 < end ? 2 : 1, next);
    }
  }
}

template <class Tiles>
void gemm_by_tiles(const TileGemm& gemm) {
  const int64_t pieces = (gemm.cols + 31) / 32;
  const bool merged = gemm.width <= kMergedTokens;
  Tiles tiles(static_cast<int>(merged ? 2 * gemm.width : gemm.width), 16);  // configured as long as it lives
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  if (gemm.tokens <= kTileTokens) return few_tokens(tiles, {gemm, pieces, gemm.width}, panels);
  TileGemm pass = gemm;
  for (int64_t token = 0; token < gemm.tokens; token += kPassTokens) {
    pass.tokens = gemm.tokens - token < kPassTokens ? gemm.tokens - token : kPassTokens;
    pass.x.words = gemm.x.words + TokenTiles::offset(token / kTileTokens, 0, pieces, gemm.width);
    pass.out = gemm.out + token * gemm.out_stride;
    for (int64_t panel = 0; panel < panels; panel += kPanelBlock)
      many_tokens(tiles, {pass, pieces, gemm.width}, panel,
                  panel + kPanelBlock < panels ? panel + kPanelBlock : panels);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
