// Scores of as many keys at once as a vector has lanes (W), for levels that sum up a square of floats. Included by attention.h
// only.
//
// A score is the sum of W chains, chain j over the columns j, j + W, ..., added up as a tree: those W / 2 apart, then W / 4, to
// neighbours. Few queries: a lane is a chain, keys are read as they lie, and squares of W keys by W chains are added up
// lane by lane. Many queries: a lane is a key, keys are transposed once for all queries, and chains are added up vector by
// vector. Both give the same bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/rows.h"
#include "kernels/cpu/pointwise.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kWidestTransposed = 576;
// Up to so many queries transposing takes longer than adding up lanes.
constexpr int64_t kQueriesByRows = 6;

// W keys as floats: rows as they lie, or transposed to [column][key].
template <class I>
struct KeySquares {
  alignas(64) float floats[(kWidestTransposed + I::kWidth) * I::kWidth];
};

// The rows of W keys from `key` on. Past the last key its row is repeated.
template <class I>
[[gnu::always_inline]] inline void rows_of(const uint8_t* (&rows)[I::kWidth], const KvRows& keys,
                                           int64_t key) {
  for (int64_t r = 0; r < I::kWidth; ++r)
    rows[r] = keys.rows[key + r < keys.count ? key + r : keys.count - 1];
}

template <class I>
[[gnu::always_inline]] inline void store_scores(float* out, typename I::F score, const KvRows& keys,
                                                int64_t key) {
  const int64_t left = keys.count - key;
  if (left <= 0) __builtin_unreachable();
  if (keys.scales != nullptr) score = I::mul(score, load_floats<I>(keys.scales + key, left));
  store_floats<I>(out + key, score, left);
}

// -- few queries

// floats[vector of columns][key][lane]
template <class I, class T>
void widen_keys(KeySquares<I>& to, const KvRows& keys, int64_t key) {
  const uint8_t* rows[I::kWidth];
  rows_of<I>(rows, keys, key);
  float* at = to.floats;
  for (int64_t column = 0; column < keys.width; column += I::kWidth) {
#pragma GCC unroll 16
    for (int r = 0; r < I::kWidth; ++r, at += I::kWidth)
      I::store(at, load_columns<I, T>(rows[r], column, keys.width - column));
  }
}

template <class I>
typename I::F row_scores(const float* query, int64_t width, const KeySquares<I>& keys) {
  typename I::F sums[I::kWidth];
#pragma GCC unroll 16
  for (int r = 0; r < I::kWidth; ++r) sums[r] = I::set1(0.0f);
  const float* at = keys.floats;
  for (int64_t column = 0; column < width; column += I::kWidth) {
    const auto x = load_floats<I>(query + column, width - column);
#pragma GCC unroll 16
    for (int r = 0; r < I::kWidth; ++r, at += I::kWidth) sums[r] = I::fma(I::load(at), x, sums[r]);
  }
  return I::sums_of_rows(sums);
}

// -- many queries

template <class I, class T>
void transpose_keys(KeySquares<I>& to, const KvRows& keys, int64_t key) {
  const uint8_t* rows[I::kWidth];
  rows_of<I>(rows, keys, key);
  for (int64_t column = 0; column < keys.width; column += I::kWidth) {
    typename I::F square[I::kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < I::kWidth; ++r) square[r] = load_columns<I, T>(rows[r], column, keys.width - column);
    I::transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < I::kWidth; ++r) I::store(to.floats + (column + r) * I::kWidth, square[r]);
  }
}

// The part of the tree with the chains J, J + Stride, ... of N queries.
template <class I, int N, int J, int Stride>
[[gnu::always_inline]] inline void chain_tree(typename I::F (&sums)[N], const float* const (&queries)[N],
                                              const float* keys, int64_t width) {
  if constexpr (Stride == I::kWidth) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[n] = I::set1(0.0f);
    for (int64_t column = J; column < width; column += I::kWidth) {
      const auto key = I::load(keys + column * I::kWidth);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[n] = I::fma(key, I::set1(queries[n][column]), sums[n]);
    }
  } else {
    typename I::F others[N];
    chain_tree<I, N, J, 2 * Stride>(sums, queries, keys, width);
    chain_tree<I, N, J + Stride, 2 * Stride>(others, queries, keys, width);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[n] = I::add(sums[n], others[n]);
  }
}

template <class I, int N>
void lane_scores(float* out, int64_t stride, const float* const* queries, const KvRows& keys, int64_t key,
                 const KeySquares<I>& columns) {
  const float* x[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) x[n] = queries[n];
  typename I::F sums[N];
  chain_tree<I, N, 0, 1>(sums, x, columns.floats, keys.width);
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) store_scores<I>(out + n * stride, sums[n], keys, key);
}

template <class I, class T>
void square_scores(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                   const KvRows& keys) {
  KeySquares<I> squares;
  for (int64_t key = 0; key < keys.count; key += I::kWidth) {
    prefetch_rows(keys, key + kRowsAhead, I::kWidth, T::kBytes);
    if (query_count <= kQueriesByRows) {
      widen_keys<I, T>(squares, keys, key);
      for (int64_t n = 0; n < query_count; ++n)
        store_scores<I>(out + n * stride, row_scores<I>(queries[n], keys.width, squares), keys, key);
      continue;
    }
    transpose_keys<I, T>(squares, keys, key);
    for_tiles<6>(0, query_count, [&]<int N>(int64_t query) {
      lane_scores<I, N>(out + query * stride, stride, queries + query, keys, key, squares);
    });
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
