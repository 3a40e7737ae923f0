// What an instruction set offers for weights in panels (format.h): plain functions over plain memory. No result depends on
// how the work was cut. Panels in quads and in pairs give the same bits on all instruction sets, and so do panels in columns; these
// (gemm_columns.h) and panels in words (gemm_tiles.h) have arithmetics of their own, for every number of tokens.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/format.h"
#include "tensor/dtype.h"

namespace sluice::kernels::cpu {

// 32 activations as int8, rounded as those of ActivationBlock: x ≈ scale * quant.
struct alignas(64) PanelActivations {
  int8_t quants[32];
  float scale;
  float sum;                  // scale * sum of quants
  float half_sums[2];         // the same over each 16
  int32_t negated_sum;        // - sum of quants: what codes with an offset count too much
  int32_t negated_halves[2];  // the same over each 16
};

// Tokens that a matrix tile takes at once.
inline constexpr int64_t kTileTokens = 16;

// A piece of 32 columns of 16 tokens, as matrix tiles of int8 read it: the numbers of PanelActivations, field by field. SMMLA
// reads two tokens at a time: in the place of their quants, eight columns of both lie side by side.
struct alignas(64) ActivationTile {
  int8_t quants[kTileTokens][32];
  float scale[kTileTokens];
  float sum[kTileTokens];
  float half_sums[2][kTileTokens];
};

// out[token][row] = x[token] · weights[row] (+ bias[row]) for rows [0, rows) and tokens [0, tokens).
struct PanelGemm {
  DType type;
  const uint8_t* panels;  // panel 0; panels follow each other
  int64_t rows;           // from panel 0 on
  int64_t cols;
  int64_t tokens;
  const float* bias;  // of row 0, or null
  float* out;         // of token 0, row 0
  int64_t out_stride;
  const PanelActivations* x;  // token 0; cols / 32 per token
  const ActivationTile* tiles =
      nullptr;  // instead of x, for at most kMostTiledTokens: cols / 32 for each 16 tokens from token 0 on
};
// Tokens of one call on matrix tiles, which take columns in chunks: these tokens' share of one is at most 512 KB.
inline constexpr int64_t kMostTiledTokens = 512;

// Activations as matrix tiles of bf16 read them: for each 16 tokens, for each 32 columns, `width` tokens by 32 columns, and behind
// them, likewise, what rounding to these lost.
struct TokenTiles {
  uint16_t* words = nullptr;

  // Of `tokens` tokens in one GEMM: fewer than 16 lie close together, more are filled up with zeros.
  static constexpr int64_t width(int64_t tokens) { return tokens < kTileTokens ? tokens : kTileTokens; }
  static constexpr int64_t count(int64_t tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }
  // Words before the tile of these tokens and columns.
  static constexpr int64_t offset(int64_t tile, int64_t piece, int64_t pieces, int64_t width) {
    return (tile * pieces + piece) * 64 * width;
  }
};

// The same GEMM over panels in words.
struct TileGemm {
  const uint8_t* panels;
  int64_t rows;
  int64_t cols;
  int64_t tokens;  // at most kMostTiledTokens
  const float* bias;
  float* out;
  int64_t out_stride;
  TokenTiles x;
  int64_t width;  // of its tiles
};

// One to 16 tokens' columns [32 begin, 32 end) of x into `to`, the first of these tokens' tiles.
struct TileFill {
  const float* x;  // token 0, column 0
  int64_t stride;
  int64_t cols;
  int64_t tokens;
  int64_t width;
  int64_t begin, end;
  TokenTiles to;
};

struct TileKernels {
  void (*gemm)(const TileGemm&);
  void (*fill)(const TileFill&);  // what is not finite stays so
};

// Activations for panels in columns: tokens in tiles of at most `most`, as even as can be, one tile behind the other; of a tile
// column after column, the tokens of each side by side.
struct ColumnTiles {
  int64_t tokens;  // at most kMostTiledTokens
  int64_t most;

  constexpr int64_t count() const { return (tokens + most - 1) / most; }
  constexpr int64_t begin(int64_t tile) const { return tokens * tile / count(); }
};

// The same GEMM over panels in columns.
struct ColumnGemm {
  DType type;
  const uint8_t* panels;
  int64_t rows;
  int64_t cols;
  int64_t tokens;  // at most kMostTiledTokens
  const float* bias;
  float* out;
  int64_t out_stride;
  const float* x;  // ColumnTiles
};

// Columns [begin, end) of the tokens of one tile into `to`, where that tile begins.
struct ColumnFill {
  const float* x;  // token 0, column 0
  int64_t stride;
  int64_t tokens;
  int64_t begin, end;
  float* to;
};

struct ColumnKernels {
  void (*gemm)(const ColumnGemm&);
  void (*fill)(const ColumnFill&);
  int64_t tile_tokens;  // ColumnTiles::most
};

struct PanelKernels {
  void (*gemm)(const PanelGemm&);
  // `count` times 32 activations. What is not finite makes sums that are not finite.
  void (*quantize)(PanelActivations* out, const float* x, int64_t count);
  // The same into one token's place in `count` tiles; null where the level has no tiles of int8.
  void (*quantize_tiles)(ActivationTile* out, int64_t place, const float* x, int64_t count) = nullptr;
  int64_t tiles_from = 0;                   // with tiles: from this number of tokens on they are faster ...
  int64_t one_tile_from = kTileTokens + 1;  // ... and from this one to as many as one tile takes
  const TileKernels* words = nullptr;       // for panels in words, where the level has tiles of bf16
  PanelLayout codes = PanelLayout::Quads;   // of types of blocks, as `gemm` reads them
  const ColumnKernels* columns = nullptr;   // null: plain types are read as they are stored

  bool takes_tiles(int64_t tokens) const {
    if (quantize_tiles == nullptr) return false;
    return tokens >= tiles_from || (tokens >= one_tile_from && tokens <= kTileTokens);
  }
  PanelLayout layout(DType type) const {
    if (words != nullptr && has_words(type)) return PanelLayout::Words;
    return columns != nullptr && has_columns(type) ? PanelLayout::Columns : codes;
  }
};

// One function per file panels_NAME.cpp, compiled with that level's instructions.
const PanelKernels& scalar_panels();
const PanelKernels& neon_panels();
const PanelKernels& dotprod_panels();
const PanelKernels& i8mm_panels();
const PanelKernels& avx2_panels();
const PanelKernels& avx512_panels();
const PanelKernels& avx512_vnni_panels();
const PanelKernels& amx_panels();
const TileKernels& amx_tiles();
const ColumnKernels& scalar_columns();
const ColumnKernels& avx2_columns();
const ColumnKernels& avx512_columns();
// AMX with its tile instructions in plain loops: needs AVX-512 VNNI only. For tests.
const PanelKernels& amx_model_panels();
const TileKernels& amx_model_tiles();

}  // namespace sluice::kernels::cpu
