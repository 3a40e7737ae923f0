// Scores for levels that multiply a vector by one lane of another, with four lanes (W = 4). Included by attention.h only.
//
// A score is the sum of four chains, chain j over the columns j, j + 4, ..., added up as (0 + 1) + (2 + 3). Few queries: a lane
// is a chain, and keys are read as they lie. Many queries: a lane is a key. Keys are transposed, 16 at a time, once for all
// queries, and queries are brought into the order of the chains, so that one vector of a query serves four columns of a
// chain. Both give the same bits.
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

constexpr int64_t kLaneKeys = 16, kLaneQueries = 4;
constexpr int64_t kLaneColumns = 16;  // four of each chain

// -- few queries

// N queries by four keys.
template <class I, class T, int N>
void row_tile(float* out, int64_t stride, const float* const* queries, const KvRows& keys, int64_t key) {
  const uint8_t* rows[4];
  rows_of<I>(rows, keys, key);
  typename I::F sums[N][4];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) sums[n][r] = I::set1(0.0f);
  }
  const auto add = [&](auto load_key, auto load_query) __attribute__((always_inline)) {
    typename I::F k[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) k[r] = load_key(rows[r]);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const auto x = load_query(queries[n]);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) sums[n][r] = I::fma(k[r], x, sums[n][r]);
    }
  };
  int64_t column = 0;
  for (; column + 4 <= keys.width; column += 4)
    add([=](const uint8_t* row) { return T::load(row + column * T::kBytes); },
        [=](const float* query) { return I::load(query + column); });
  const int64_t left = keys.width - column;
  if (left > 0)
    add([=](const uint8_t* row) { return load_columns<I, T>(row, column, left); },
        [=](const float* query) { return load_floats<I>(query + column, left); });
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) store_scores<I>(out + n * stride, I::neighbours_added(sums[n]), keys, key);
}

template <class I, class T>
void scores_by_rows(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                    const KvRows& keys) {
  for (int64_t key = 0; key < keys.count; key += 4) {
    prefetch_rows(keys, key + kRowsAhead, 4, T::kBytes);
    for_tiles<4>(0, query_count, [&]<int N>(int64_t query) {
      row_tile<I, T, N>(out + query * stride, stride, queries + query, keys, key);
    });
  }
}

// -- many queries

// [column][key], zeros past the last column.
template <class I>
struct KeyColumns {
  alignas(64) float floats[(kWidestTransposed + kLaneColumns) * kLaneKeys];
};

// kLaneKeys keys from `key` on. Past the last key its row is repeated.
template <class I, class T>
void fill_columns(KeyColumns<I>& to, const KvRows& keys, int64_t key) {
  for (int64_t first = 0; first < kLaneKeys; first += 4) {
    const uint8_t* rows[4];
    rows_of<I>(rows, keys, key + first < keys.count ? key + first : keys.count - 1);
    for (int64_t column = 0; column < keys.width; column += 4) {
      typename I::F square[4];
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) square[r] = load_columns<I, T>(rows[r], column, keys.width - column);
      I::transpose(square);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) I::store(to.floats + (column + r) * kLaneKeys + first, square[r]);
    }
  }
}

// The chains of a call's queries, four queries at a time: [16 columns][chain][query]{four columns of the chain}, zeros past the
// last column.
template <class I>
struct QueryChains {
  static constexpr int64_t kMost = 32;
  alignas(64) float floats[kMost * (kWidestTransposed + kLaneColumns)];
  int64_t width;  // whole kLaneColumns

  QueryChains(const float* const* queries, int64_t count, const KvRows& keys)
      : width((keys.width + kLaneColumns - 1) / kLaneColumns * kLaneColumns) {
    for (int64_t n = 0; n < count; ++n) {
      float* to = floats + n / kLaneQueries * kLaneQueries * width + n % kLaneQueries * 4;
      for (int64_t column = 0; column < keys.width; column += kLaneColumns) {
        typename I::F square[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const int64_t left = keys.width - column - 4 * i;
          square[i] = left <= 0 ? I::set1(0.0f) : load_floats<I>(queries[n] + column + 4 * i, left);
        }
        I::transpose(square);
#pragma GCC unroll 4
        for (int chain = 0; chain < 4; ++chain)
          I::store(to + (column + chain * 4) * kLaneQueries, square[chain]);
      }
    }
  }
  // REQUIRES: query % kLaneQueries == 0
  const float* of(int64_t query) const {
    return floats + query * width;
  }
};

// Chains 2 Half and 2 Half + 1 of N queries and two vectors of keys, added up.
template <class I, int N, int Half>
[[gnu::always_inline]] inline void chain_pair(typename I::F (&sums)[N][2], const float* queries,
                                              const float* columns, int64_t width) {
  typename I::F chains[2][N][2];
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) chains[j][n][0] = chains[j][n][1] = I::set1(0.0f);
  }
  for (int64_t column = 0; column < width; column += kLaneColumns) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int chain = 2 * Half + j;
      typename I::F x[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) x[n] = I::load(queries + (column + chain * 4) * kLaneQueries + n * 4);
      const auto add_column = [&]<int L>() __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const auto k = I::load(columns + (column + 4 * L + chain) * kLaneKeys + v * 4);
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) chains[j][n][v] = I::template fma_lane<L>(k, x[n], chains[j][n][v]);
        }
      };
      add_column.template operator()<0>();
      add_column.template operator()<1>();
      add_column.template operator()<2>();
      add_column.template operator()<3>();
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const auto sum = I::add(chains[0][n][v], chains[1][n][v]);
      sums[n][v] = Half == 0 ? sum : I::add(sums[n][v], sum);
    }
  }
}

// N queries by two vectors of transposed keys.
template <class I, int N>
void lane_tile(float* out, int64_t stride, const float* chains, const KvRows& keys, int64_t key,
               const float* columns) {
  typename I::F sums[N][2];
  chain_pair<I, N, 0>(sums, chains, columns, keys.width);
  chain_pair<I, N, 1>(sums, chains, columns, keys.width);
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      if (key + v * 4 < keys.count) store_scores<I>(out + n * stride, sums[n][v], keys, key + v * 4);
    }
  }
}

// REQUIRES: at most QueryChains::kMost queries
template <class I, class T>
void scores_by_lanes(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                     const KvRows& keys) {
  const QueryChains<I> chains(queries, query_count, keys);
  KeyColumns<I> columns;
  const int64_t filled = keys.width / 4 * 4;
  __builtin_memset(columns.floats + filled * kLaneKeys, 0,
                   static_cast<size_t>((chains.width - filled) * kLaneKeys) * sizeof(float));
  for (int64_t key = 0; key < keys.count; key += kLaneKeys) {
    prefetch_rows(keys, key + kRowsAhead, kLaneKeys, T::kBytes);
    fill_columns<I, T>(columns, keys, key);
    for (int64_t first = 0; first < kLaneKeys && key + first < keys.count; first += 8) {
      for_tiles<kLaneQueries>(0, query_count, [&]<int N>(int64_t query) {
        // Tiles smaller than kLaneQueries are the last queries, one tile after the other.
        lane_tile<I, N>(out + query * stride, stride,
                        chains.of(query / kLaneQueries * kLaneQueries) + query % kLaneQueries * 4, keys,
                        key + first, columns.floats + first);
      });
    }
  }
}

template <class I, class T>
void lane_scores_of(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                    const KvRows& keys) {
  if (query_count <= kQueriesByRows) return scores_by_rows<I, T>(out, stride, queries, query_count, keys);
  constexpr int64_t kMost = QueryChains<I>::kMost;
  for (int64_t query = 0; query < query_count; query += kMost)
    scores_by_lanes<I, T>(out + query * stride, stride, queries + query,
                          query_count - query < kMost ? query_count - query : kMost, keys);
}

}  // namespace
}  // namespace sluice::kernels::cpu
