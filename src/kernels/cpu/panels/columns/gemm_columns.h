// GEMMs of activations [tokens, cols] with plain weights in panels in columns (format.h). Included by columns_NAME.cpp only.
//
// A vector holds one column of up to 16 rows and is multiplied with one activation, broadcast: a tile of some panels by some
// tokens stays in registers over kColumnChunk columns. A sum is that of its chunks, in order, each of fused multiply-adds from
// zero, column after column: the same bits on every level, for any number of tokens and any cut.
//
// Few tokens (two tiles): weights are widened in registers, panel after panel, as memory gives them. More: a chunk of
// kBlockPanels panels is widened to floats in the second cache, once for all tokens; two panels of it at a time are multiplied
// with all tiles of tokens, whose part of the chunk stays in the first cache meanwhile. Bytes moved: those of the panels.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/plain.h"
#include "kernels/cpu/panels/kernels.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kColumnChunk = 256;
constexpr int64_t kBlockPanels = 8;
constexpr int64_t kFewTiles = 2;
// Bytes of a panel that are fetched ahead: two cores of a Cascade Lake read 22 GB/s with it where 16 came without.
constexpr int64_t kColumnsAhead = 2048;

// Sums are panels by tokens and leave registers for a column of weights and an activation. Few tokens leave some for more
// panels, which are more streams from memory.
template <class I>
struct ColumnTile {
  static constexpr int kVectors = kPanelRows / I::kWidth;  // of a panel
  static constexpr int kPanels = I::kWidth >= 16 ? 2 : 1;
  static constexpr int kTokens = I::kWidth >= 16 ? 12 : I::kWidth >= 8 ? 6 : 4;
  static constexpr int kMorePanels = I::kWidth >= 16 ? 4 : I::kWidth >= 8 ? 2 : 1;
  static constexpr int kFewTokens = I::kWidth >= 16 ? 6 : 2;
};

// `count` floats, fewer than a vector where rows end.
template <class I>
void store_rows(float* out, typename I::F value, int64_t count) {
  if (count >= I::kWidth) return I::store(out, value);
  float values[I::kWidth];
  I::store(values, value);
  for (int64_t r = 0; r < count; ++r) out[r] = values[r];
}
template <class I>
typename I::F load_rows(const float* from, int64_t count) {
  if (count >= I::kWidth) return I::load(from);
  float values[I::kWidth] = {};
  for (int64_t r = 0; r < count; ++r) values[r] = from[r];
  return I::load(values);
}

// Where the sums of a tile go, [tokens][rows].
struct ColumnSums {
  float* to;  // of the tile's first token and row
  int64_t stride;
  const float* before;  // sums of the chunks before, which are added to; null: none
  int64_t before_stride;
  const float* bias;  // with the last chunk, or null
  int64_t rows;       // to be stored, from the tile's first on
};

// Panels [0, P) of a tile at the chunk's first column. Where rows end before, a panel is multiplied again and not stored.
template <int P>
struct PanelPointers {
  const uint8_t* at[P];

  PanelPointers(const uint8_t* first, int64_t stride, int64_t valid) {
    for (int p = 0; p < P; ++p) at[p] = first + (p < valid ? p : 0) * stride;
  }
};

// sums[v][n] += weights of vector v of the panels · token n, column after column; bytes `ahead` of the panels are fetched.
template <class I, class T, int P, int N>
[[gnu::always_inline]] inline void add_products(typename I::F (&sums)[P * ColumnTile<I>::kVectors][N],
                                                const PanelPointers<P>& panels, const float* x,
                                                int64_t columns, int64_t ahead) {
  constexpr int kVectors = ColumnTile<I>::kVectors, V = P * kVectors;
  const uint8_t* at[P];
  for (int p = 0; p < P; ++p) at[p] = panels.at[p];
  for (int64_t column = 0; column < columns; ++column, x += N) {
    typename I::F weights[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) weights[v] = T::load(at[v / kVectors] + v % kVectors * I::kWidth * T::kBytes);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      __builtin_prefetch(at[p] + ahead);
      at[p] += kPanelRows * T::kBytes;
    }
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const typename I::F token = I::set1(x[n]);
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[v][n] = I::fma(weights[v], token, sums[v][n]);
    }
  }
}

// `sums` of one chunk, [tokens][rows] floats.
template <class I>
void add_chunk(const ColumnSums& out, const float* sums, int64_t rows, int64_t tokens) {
  for (int64_t n = 0; n < tokens; ++n, sums += rows) {
    for (int64_t row = 0; row < rows && row < out.rows; row += I::kWidth) {
      const int64_t left = out.rows - row;
      typename I::F sum = I::load(sums + row);
      if (out.before != nullptr)
        sum = I::add(load_rows<I>(out.before + n * out.before_stride + row, left), sum);
      if (out.bias != nullptr) sum = I::add(sum, load_rows<I>(out.bias + row, left));
      store_rows<I>(out.to + n * out.stride + row, sum, left);
    }
  }
}

// What one call multiplies: columns of some panels.
template <int P>
struct ColumnPiece {
  PanelPointers<P> panels;
  const float* x;  // of the tile's tokens, first column
  int64_t columns;
  int64_t ahead;  // bytes
};

template <class I, class T, int P, int N>
void column_tile(const ColumnPiece<P>& piece, const ColumnSums& out) {
  constexpr int kVectors = ColumnTile<I>::kVectors, V = P * kVectors;
  if (out.before != nullptr) {
    for (int n = 0; n < N; ++n)
      for (int p = 0; p < P; ++p) __builtin_prefetch(out.before + n * out.before_stride + p * kPanelRows, 1);
  }
  typename I::F sums[V][N];
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) sums[v][n] = I::set1(0.0f);
  }
  add_products<I, T, P, N>(sums, piece.panels, piece.x, piece.columns, piece.ahead);
  alignas(64) float chunk[N * P * kPanelRows];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) I::store(chunk + n * P * kPanelRows + v * I::kWidth, sums[v][n]);
  }
  add_chunk<I>(out, chunk, P * kPanelRows, N);
}

// A tile of `tokens` tokens, at most N.
template <class I, class T, int P, int N>
void column_tile_of(int64_t tokens, const ColumnPiece<P>& piece, const ColumnSums& out) {
  if constexpr (N > 1) {
    if (tokens < N) return column_tile_of<I, T, P, N - 1>(tokens, piece, out);
  }
  column_tile<I, T, P, N>(piece, out);
}

// All columns of up to P panels from `panel` on by a tile of at most N tokens.
template <class I, class T, int P, int N>
void columns_by_tile(const ColumnGemm& gemm, int64_t panel, const ColumnTiles& tiles, int64_t tile) {
  constexpr int64_t kColumnBytes = kPanelRows * T::kBytes;
  const int64_t valid = (gemm.rows + kPanelRows - 1) / kPanelRows - panel;
  const int64_t token = tiles.begin(tile), tokens = tiles.begin(tile + 1) - token;
  const int64_t row = panel * kPanelRows;
  float* out = gemm.out + token * gemm.out_stride + row;
  for (int64_t begin = 0; begin < gemm.cols; begin += kColumnChunk) {
    const int64_t columns = gemm.cols - begin < kColumnChunk ? gemm.cols - begin : kColumnChunk;
    const uint8_t* first = gemm.panels + (panel * gemm.cols + begin) * kColumnBytes;
    const bool last = begin + columns == gemm.cols;
    column_tile_of<I, T, P, N>(tokens,
                               {PanelPointers<P>(first, gemm.cols * kColumnBytes, valid),
                                gemm.x + token * gemm.cols + begin * tokens, columns, kColumnsAhead},
                               {out, gemm.out_stride, begin == 0 ? nullptr : out, gemm.out_stride,
                                last && gemm.bias != nullptr ? gemm.bias + row : nullptr, gemm.rows - row});
  }
}

template <class I, class T>
void widen_columns(float* to, const uint8_t* from, int64_t columns) {
  for (int64_t i = 0; i < columns * kPanelRows; i += I::kWidth)
    I::store(to + i, T::load(from + i * T::kBytes));
}

// Sums lie here until a row's last chunk: rows of `out` are often a power of two apart, and so in few sets of the caches.
struct ColumnScratch {
  alignas(64) float widened[kBlockPanels * kColumnChunk * kPanelRows];
  alignas(64) float sums[kMostTiledTokens][kBlockPanels * kPanelRows];
};

// A chunk of up to kBlockPanels panels from `panel` on by all tokens.
template <class I, class T>
void columns_for_many(const ColumnGemm& gemm, int64_t panel, int64_t begin, ColumnScratch& scratch) {
  using Tile = ColumnTile<I>;
  constexpr int64_t kPanelFloats = kColumnChunk * kPanelRows;
  const int64_t left = (gemm.rows + kPanelRows - 1) / kPanelRows - panel;
  const int64_t count = left < kBlockPanels ? left : kBlockPanels;
  const int64_t columns = gemm.cols - begin < kColumnChunk ? gemm.cols - begin : kColumnChunk;
  const bool last = begin + columns == gemm.cols;
  for (int64_t p = 0; p < count; ++p)
    widen_columns<I, T>(scratch.widened + p * kPanelFloats,
                        gemm.panels + ((panel + p) * gemm.cols + begin) * kPanelRows * T::kBytes, columns);
  const ColumnTiles tiles{gemm.tokens, Tile::kTokens};
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int64_t token = tiles.begin(tile), tokens = tiles.begin(tile + 1) - token;
    for (int64_t p = 0; p < count; p += Tile::kPanels) {
      const int64_t row = (panel + p) * kPanelRows;
      float* sums = scratch.sums[token] + p * kPanelRows;
      constexpr int64_t kStride = kBlockPanels * kPanelRows;
      const auto* first = reinterpret_cast<const uint8_t*>(scratch.widened + p * kPanelFloats);
      column_tile_of<I, PlainF32<I>, Tile::kPanels, Tile::kTokens>(
          tokens,
          {PanelPointers<Tile::kPanels>(first, kPanelFloats * 4, count - p),
           gemm.x + token * gemm.cols + begin * tokens, columns, 0},
          {last ? gemm.out + token * gemm.out_stride + row : sums, last ? gemm.out_stride : kStride,
           begin == 0 ? nullptr : sums, kStride, last && gemm.bias != nullptr ? gemm.bias + row : nullptr,
           gemm.rows - row});
    }
  }
}

template <class I, class T>
void gemm_columns_of(const ColumnGemm& gemm) {
  using Tile = ColumnTile<I>;
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  const ColumnTiles tiles{gemm.tokens, Tile::kTokens};
  if (tiles.count() > kFewTiles) {
    ColumnScratch scratch;
    for (int64_t panel = 0; panel < panels; panel += kBlockPanels)
      for (int64_t begin = 0; begin < gemm.cols; begin += kColumnChunk)
        columns_for_many<I, T>(gemm, panel, begin, scratch);
    return;
  }
  int64_t panel = 0;
  if (gemm.tokens <= Tile::kFewTokens) {
    for (; panel + Tile::kPanels < panels; panel += Tile::kMorePanels)
      columns_by_tile<I, T, Tile::kMorePanels, Tile::kFewTokens>(gemm, panel, tiles, 0);
  }
  for (; panel < panels; panel += Tile::kPanels)
    for (int64_t tile = 0; tile < tiles.count(); ++tile)
      columns_by_tile<I, T, Tile::kPanels, Tile::kTokens>(gemm, panel, tiles, tile);
}

template <class I>
void gemm_columns(const ColumnGemm& gemm) {
  switch (gemm.type) {
    case DType::F32:
      return gemm_columns_of<I, PlainF32<I>>(gemm);
    case DType::F16:
      return gemm_columns_of<I, PlainF16<I>>(gemm);
    default:
      return gemm_columns_of<I, PlainBf16<I>>(gemm);
  }
}

template <int N>
void fill_columns_of(const ColumnFill& fill) {
  if constexpr (N > 1) {
    if (fill.tokens < N) return fill_columns_of<N - 1>(fill);
  }
  const float* x[N];
  for (int n = 0; n < N; ++n) x[n] = fill.x + n * fill.stride;
  float* to = fill.to + fill.begin * N;
  for (int64_t column = fill.begin; column < fill.end; ++column, to += N) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) to[n] = x[n][column];
  }
}

template <class I>
constexpr ColumnKernels make_columns() {
  return {gemm_columns<I>, fill_columns_of<ColumnTile<I>::kTokens>, ColumnTile<I>::kTokens};
}

}  // namespace
}  // namespace sluice::kernels::cpu
