// GEMMs of activations [tokens, cols] with plain weights in panels in columns (format.h). Included by columns_NAME.cpp only.
//
// A vector holds one column of up to 16 rows and is multiplied with one activation, broadcast: a tile of some panels by some
// tokens stays in registers over kColumnChunk columns. A sum is that of its chunks, in order, each of fused multiply-adds from
// zero, column after column: the same bits on every level, for any number of tokens and any cut.
//
// Few tokens (one tile): weights are widened in registers, panel after panel, as memory gives them. More: a chunk of
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
constexpr int64_t kColumnsAhead =
    2048;  // bytes of a panel: 22 GB/s on two cores of a Cascade Lake, where 16 came without it

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

// The place of a tile in the GEMM: columns of this chunk, rows from `row` on, tokens from `token` on.
struct ColumnPlace {
  int64_t row, token;
  bool first, last;  // chunk of the row
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

// Sums of one chunk, [tokens][rows] floats, to those of the chunks before.
template <class I>
void add_chunk(const ColumnGemm& gemm, const ColumnPlace& place, const float* sums, int64_t rows,
               int64_t tokens) {
  const int64_t left = gemm.rows - place.row;
  for (int64_t n = 0; n < tokens; ++n, sums += rows) {
    float* out = gemm.out + (place.token + n) * gemm.out_stride + place.row;
    for (int64_t row = 0; row < rows && row < left; row += I::kWidth) {
      typename I::F sum = I::load(sums + row);
      if (!place.first) sum = I::add(load_rows<I>(out + row, left - row), sum);
      if (place.last && gemm.bias != nullptr)
        sum = I::add(sum, load_rows<I>(gemm.bias + place.row + row, left - row));
      store_rows<I>(out + row, sum, left - row);
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
void column_tile(const ColumnGemm& gemm, const ColumnPiece<P>& piece, const ColumnPlace& place) {
  constexpr int kVectors = ColumnTile<I>::kVectors, V = P * kVectors;
  if (!place.first) {
    const float* out = gemm.out + place.token * gemm.out_stride + place.row;
    for (int n = 0; n < N; ++n)
      for (int p = 0; p < P; ++p) __builtin_prefetch(out + n * gemm.out_stride + p * kPanelRows, 1);
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
  add_chunk<I>(gemm, place, chunk, P * kPanelRows, N);
}

// A tile of `tokens` tokens, at most N.
template <class I, class T, int P, int N>
void column_tile_of(int64_t tokens, const ColumnGemm& gemm, const ColumnPiece<P>& piece,
                    const ColumnPlace& place) {
  if constexpr (N > 1) {
    if (tokens < N) return column_tile_of<I, T, P, N - 1>(tokens, gemm, piece, place);
  }
  column_tile<I, T, P, N>(gemm, piece, place);
}

// All columns of up to P panels from `panel` on by all tokens, at most N.
template <class I, class T, int P, int N>
void columns_for_few(const ColumnGemm& gemm, int64_t panel) {
  constexpr int64_t kColumnBytes = kPanelRows * T::kBytes;
  const int64_t valid = (gemm.rows + kPanelRows - 1) / kPanelRows - panel;
  for (int64_t begin = 0; begin < gemm.cols; begin += kColumnChunk) {
    const int64_t columns = gemm.cols - begin < kColumnChunk ? gemm.cols - begin : kColumnChunk;
    const uint8_t* first = gemm.panels + (panel * gemm.cols + begin) * kColumnBytes;
    column_tile_of<I, T, P, N>(gemm.tokens, gemm,
                               {PanelPointers<P>(first, gemm.cols * kColumnBytes, valid),
                                gemm.x + begin * gemm.tokens, columns, kColumnsAhead},
                               {panel * kPanelRows, 0, begin == 0, begin + columns == gemm.cols});
  }
}

template <class I, class T>
void widen_columns(float* to, const uint8_t* from, int64_t columns) {
  for (int64_t i = 0; i < columns * kPanelRows; i += I::kWidth)
    I::store(to + i, T::load(from + i * T::kBytes));
}

// A chunk of up to kBlockPanels panels from `panel` on by all tokens. `floats`: room for the chunk widened.
template <class I, class T>
void columns_for_many(const ColumnGemm& gemm, int64_t panel, int64_t begin, float* floats) {
  using Tile = ColumnTile<I>;
  const int64_t left = (gemm.rows + kPanelRows - 1) / kPanelRows - panel;
  const int64_t count = left < kBlockPanels ? left : kBlockPanels;
  const int64_t columns = gemm.cols - begin < kColumnChunk ? gemm.cols - begin : kColumnChunk;
  for (int64_t p = 0; p < count; ++p)
    widen_columns<I, T>(floats + p * kColumnChunk * kPanelRows,
                        gemm.panels + ((panel + p) * gemm.cols + begin) * kPanelRows * T::kBytes, columns);
  const ColumnTiles tiles{gemm.tokens, Tile::kTokens};
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int64_t token = tiles.begin(tile), tokens = tiles.begin(tile + 1) - token;
    for (int64_t p = 0; p < count; p += Tile::kPanels) {
      const auto* first = reinterpret_cast<const uint8_t*>(floats + p * kColumnChunk * kPanelRows);
      column_tile_of<I, PlainF32<I>, Tile::kPanels, Tile::kTokens>(
          tokens, gemm,
          {PanelPointers<Tile::kPanels>(first, kColumnChunk * kPanelRows * 4, count - p),
           gemm.x + token * gemm.cols + begin * tokens, columns, 0},
          {(panel + p) * kPanelRows, token, begin == 0, begin + columns == gemm.cols});
    }
  }
}

template <class I, class T>
void gemm_columns_of(const ColumnGemm& gemm) {
  using Tile = ColumnTile<I>;
  const int64_t panels = (gemm.rows + kPanelRows - 1) / kPanelRows;
  if (gemm.tokens > Tile::kTokens) {
    alignas(64) float floats[kBlockPanels * kColumnChunk * kPanelRows];
    for (int64_t panel = 0; panel < panels; panel += kBlockPanels)
      for (int64_t begin = 0; begin < gemm.cols; begin += kColumnChunk)
        columns_for_many<I, T>(gemm, panel, begin, floats);
    return;
  }
  int64_t panel = 0;
  if (gemm.tokens <= Tile::kFewTokens) {
    for (; panel + Tile::kPanels < panels; panel += Tile::kMorePanels)
      columns_for_few<I, T, Tile::kMorePanels, Tile::kFewTokens>(gemm, panel);
  }
  for (; panel < panels; panel += Tile::kPanels)
    columns_for_few<I, T, Tile::kPanels, Tile::kTokens>(gemm, panel);
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
