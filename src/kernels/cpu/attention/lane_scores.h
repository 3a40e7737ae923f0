// Scores for levels that multiply a vector by one lane of another. Included by attention.h only.
//
// Keys are transposed, 16 at a time, so that a lane is a key: one vector of a query then serves four columns, and nothing is
// added up across lanes. A score takes its columns in order, whatever the number of queries.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/attention/rows.h"
#include "kernels/cpu/attention/square_scores.h"
#include "kernels/cpu/pointwise.h"

namespace sluice::kernels::cpu {
namespace {

// Whether the level multiplies by one lane: c + a * b[Lane].
template <class I>
constexpr bool has_lanes() {
  return requires(typename I::F a) {
    I::template fma_lane<0>(a, a, a);
  };
}

constexpr int64_t kLaneKeys = 16;

// [column][key], zeros past the last column.
template <class I>
struct KeyColumns {
  alignas(64) float floats[(kWidestTransposed + I::kWidth) * kLaneKeys];
};

// kLaneKeys keys from `key` on. Past the last key its row is repeated.
template <class I, class T>
void fill_columns(KeyColumns<I>& to, const KvRows& keys, int64_t key) {
  for (int64_t first = 0; first < kLaneKeys; first += I::kWidth) {
    const uint8_t* rows[I::kWidth];
    rows_of<I>(rows, keys, key + first < keys.count ? key + first : keys.count - 1);
    for (int64_t column = 0; column < keys.width; column += I::kWidth) {
      typename I::F square[I::kWidth];
#pragma GCC unroll 4
      for (int r = 0; r < I::kWidth; ++r)
        square[r] = load_columns<I, T>(rows[r], column, keys.width - column);
      I::transpose(square);
#pragma GCC unroll 4
      for (int r = 0; r < I::kWidth; ++r) I::store(to.floats + (column + r) * kLaneKeys + first, square[r]);
    }
  }
}

// N queries by all transposed keys: as many sums as registers hold.
template <class I, int N>
void lane_tile(float* out, int64_t stride, const float* const* queries, const KvRows& keys, int64_t key,
               const KeyColumns<I>& transposed) {
  constexpr int V = kLaneKeys / I::kWidth;
  const float* columns = transposed.floats;
  typename I::F sums[N][V];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[n][v] = I::set1(0.0f);
  }
  for (int64_t column = 0; column < keys.width; column += I::kWidth, columns += I::kWidth * kLaneKeys) {
    typename I::F x[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) x[n] = load_floats<I>(queries[n] + column, keys.width - column);
    const auto add_column = [&]<int L>() __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const auto k = I::load(columns + L * kLaneKeys + v * I::kWidth);
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) sums[n][v] = I::template fma_lane<L>(k, x[n], sums[n][v]);
      }
    };
    [&]<int... L>(std::integer_sequence<int, L...>) __attribute__((always_inline)) {
      (add_column.template operator()<L>(), ...);
    }
    (std::make_integer_sequence<int, I::kWidth>());
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      if (key + v * I::kWidth < keys.count)
        store_scores<I>(out + n * stride, sums[n][v], keys, key + v * I::kWidth);
    }
  }
}

template <class I, class T>
void lane_scores_of(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                    const KvRows& keys) {
  KeyColumns<I> columns;
  for (int64_t key = 0; key < keys.count; key += kLaneKeys) {
    prefetch_rows(keys, key + kRowsAhead, kLaneKeys, T::kBytes);
    fill_columns<I, T>(columns, keys, key);
    for_tiles<4>(0, query_count, [&]<int N>(int64_t query) {
      lane_tile<I, N>(out + query * stride, stride, queries + query, keys, key, columns);
    });
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
