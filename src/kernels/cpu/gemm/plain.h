// GEMMs of plain weights, f32, f16, bf16, f8 and bytes, read as they are stored. Included by the level files only.
//
// Each row and token has one vector of partial sums, added over cols in steps of the vector width and then across its lanes.
// Bits depend on the level's width alone: few tokens have weights widened to f32 in registers, many a chunk of columns at a
// time in the first cache, once for all of them.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

template <class I>
struct PlainF32 {
  static constexpr int kBytes = 4;
  static typename I::F load(const uint8_t* from) { return I::load_f32(from); }
};
template <class I>
struct PlainF16 {
  static constexpr int kBytes = 2;
  static typename I::F load(const uint8_t* from) { return I::load_f16(from); }
};
template <class I>
struct PlainBf16 {
  static constexpr int kBytes = 2;
  static typename I::F load(const uint8_t* from) { return I::load_bf16(from); }
};
template <class I>
struct PlainF8 {
  static constexpr int kBytes = 1;
  static typename I::F load(const uint8_t* from) { return I::load_f8(from); }
};
template <class I>
struct PlainI8 {
  static constexpr int kBytes = 1;
  static typename I::F load(const uint8_t* from) { return I::load_i8(from); }
};

// The first `count` elements, the rest zero.
template <class I, class T>
typename I::F load_some(const uint8_t* from, int64_t count) {
  uint8_t padded[I::kWidth * T::kBytes] = {};
  __builtin_memcpy(padded, from, static_cast<size_t>(count * T::kBytes));
  return T::load(padded);
}

// sums[r][n] += rows[r] · x[n], lane by lane.
template <class I, class T, int R, int N>
[[gnu::always_inline]] inline void add_columns(typename I::F (&sums)[R][N], const uint8_t* const (&rows)[R],
                                               const float* const (&x)[N], int64_t width) {
  int64_t i = 0;
  for (; i + I::kWidth <= width; i += I::kWidth) {
    typename I::F tokens[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) tokens[n] = I::load(x[n] + i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto weight = T::load(rows[r] + i * T::kBytes);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] = I::fma(weight, tokens[n], sums[r][n]);
    }
  }
  if (i == width) return;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const auto weight = load_some<I, T>(rows[r] + i * T::kBytes, width - i);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const auto token = load_some<I, PlainF32<I>>(reinterpret_cast<const uint8_t*>(x[n] + i), width - i);
      sums[r][n] = I::fma(weight, token, sums[r][n]);
    }
  }
}

// out[r][n] = rows[r] · x[n]
template <class I, class T, int R, int N>
void dot_tile(const uint8_t* const (&rows)[R], const float* const (&x)[N], int64_t width,
              float (&out)[R][N]) {
  typename I::F sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[r][n] = I::set1(0.0f);
  }
  add_columns<I, T, R, N>(sums, rows, x, width);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) out[r][n] = I::reduce_add(sums[r][n]);
  }
}

// Rows from `row` on by tokens from `token` on.
template <class I, int R, int N>
void store_sums(const Gemm& gemm, int64_t row, int64_t token, const typename I::F (&sums)[R][N]) {
  for (int r = 0; r < R; ++r) {
    const float bias = gemm.bias == nullptr ? 0.0f : gemm.bias[row + r];
    for (int n = 0; n < N; ++n)
      gemm.out[(token + n) * gemm.out_stride + row + r] = I::reduce_add(sums[r][n]) + bias;
  }
}

template <class I, class T, int R, int N>
void plain_tile(const Gemm& gemm, int64_t row, int64_t token) {
  const uint8_t* rows[R];
  const float* x[N];
  typename I::F sums[R][N];
  for (int r = 0; r < R; ++r) {
    rows[r] = gemm.weights + (row + r) * gemm.cols * T::kBytes;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[r][n] = I::set1(0.0f);
  }
  for (int n = 0; n < N; ++n) x[n] = gemm.x + (token + n) * gemm.x_stride;
  add_columns<I, T, R, N>(sums, rows, x, gemm.cols);
  store_sums<I, R, N>(gemm, row, token, sums);
}

// Tokens from `token` on, at most N at a time.
template <class I, class T, int R, int N>
void plain_tokens(const Gemm& gemm, int64_t row, int64_t token) {
  for (; token + N <= gemm.tokens; token += N) plain_tile<I, T, R, N>(gemm, row, token);
  if constexpr (N > 1) {
    if (token < gemm.tokens) plain_tokens<I, T, R, N - 1>(gemm, row, token);
  }
}

// Rows as floats, a chunk of columns at a time, and the sums of some tokens behind the chunks before: in the first cache.
template <class I, int R>
struct WidenedRows {
  static constexpr int64_t kColumns = 512, kTokens = 32;
  alignas(64) float columns[R][kColumns];
  alignas(64) float sums[kTokens][R][I::kWidth];

  template <class T>
  void widen(const Gemm& gemm, int64_t row, int64_t begin, int64_t count) {
    for (int r = 0; r < R; ++r) {
      const uint8_t* from = gemm.weights + ((row + r) * gemm.cols + begin) * T::kBytes;
      int64_t i = 0;
      for (; i + I::kWidth <= count; i += I::kWidth) I::store(columns[r] + i, T::load(from + i * T::kBytes));
      if (i < count) I::store(columns[r] + i, load_some<I, T>(from + i * T::kBytes, count - i));
    }
  }
  // Columns [begin, begin + count) of N tokens from `token` on, of which the first has place `place`.
  template <int N>
  void add(const Gemm& gemm, int64_t row, int64_t token, int64_t place, int64_t begin, int64_t count) {
    const uint8_t* rows[R];
    const float* x[N];
    typename I::F added[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      rows[r] = reinterpret_cast<const uint8_t*>(columns[r]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) added[r][n] = begin == 0 ? I::set1(0.0f) : I::load(sums[place + n][r]);
    }
    for (int n = 0; n < N; ++n) x[n] = gemm.x + (token + n) * gemm.x_stride + begin;
    add_columns<I, PlainF32<I>, R, N>(added, rows, x, count);
    if (begin + count == gemm.cols) return store_sums<I, R, N>(gemm, row, token, added);
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) I::store(sums[place + n][r], added[r][n]);
  }
};

// The same bits as plain_tokens(): each row is widened once for all of kTokens.
template <class I, class T, int R>
void widened_tokens(const Gemm& gemm, int64_t row) {
  using Rows = WidenedRows<I, R>;
  constexpr int N = I::kTokenTile;
  Rows widened;
  for (int64_t first = 0; first < gemm.tokens; first += Rows::kTokens) {
    const int64_t tokens = gemm.tokens - first < Rows::kTokens ? gemm.tokens - first : Rows::kTokens;
    for (int64_t begin = 0; begin < gemm.cols; begin += Rows::kColumns) {
      const int64_t count = gemm.cols - begin < Rows::kColumns ? gemm.cols - begin : Rows::kColumns;
      widened.template widen<T>(gemm, row, begin, count);
      int64_t n = 0;
      for (; n + N <= tokens; n += N) widened.template add<N>(gemm, row, first + n, n, begin, count);
      for (; n < tokens; ++n) widened.template add<1>(gemm, row, first + n, n, begin, count);
    }
  }
}

template <class I, class T, int R>
void plain_rows(const Gemm& gemm, int64_t row) {
  if (T::kBytes < 4 && gemm.tokens > 2 * I::kTokenTile) return widened_tokens<I, T, R>(gemm, row);
  plain_tokens<I, T, R, I::kTokenTile>(gemm, row, 0);
}

template <class I, class T>
void gemm_plain(const Gemm& gemm) {
  int64_t row = 0;
  if (gemm.tokens == 1) {  // more rows at once keep more loads in flight
    for (; row + 8 <= gemm.rows; row += 8) plain_tile<I, T, 8, 1>(gemm, row, 0);
  }
  for (; row + I::kRowTile <= gemm.rows; row += I::kRowTile) plain_rows<I, T, I::kRowTile>(gemm, row);
  for (; row < gemm.rows; ++row) plain_rows<I, T, 1>(gemm, row);
}

}  // namespace
}  // namespace sluice::kernels::cpu
