// Weighted sums of values by matrix tiles of bf16, for every number of queries. Included by attention_amx.cpp only.
//
// A tile of sums is 16 queries by 16 columns. Weights lie as rows of 32 keys, values as pairs of keys; both are sums of two
// bf16 (tile_words.h). A sum takes its keys 32 at a time, groups that begin at multiples of 32 of their positions, and of
// these the products high · low, high · high and low · high (weight · value). A key with weight 0, or none, adds nothing:
// neither the queries beside it nor where a step begins do matter to the bits of a sum.
//
// Many queries: two tiles of queries by two of columns are under way. Up to 16: four of columns.
#pragma once

#include "kernels/cpu/attention/tile_scores.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kMostTiledKeys = 512;
constexpr int64_t kMostKeySteps = kMostTiledKeys / 32;
constexpr int64_t kValueRowsAhead = 32;

alignas(64) constexpr uint8_t kAbsentRow[kWidestTiled * 4] = {};

// Weights of up to 16 queries; those from `count` on are zeros.
template <class W>
void fill_weights(uint16_t* to, const WeightedSum& sum, int64_t query, int64_t steps) {
  const int64_t before = sum.values.before, count = sum.queries - query;
  for (int64_t step = 0; step < steps; ++step, to += split_words(1)) {
    const int64_t key = 32 * step - before;
    const int64_t left = sum.values.count - key, absent = key < 0 ? -key : 0;
    for (int64_t n = 0; n < 16; ++n) {
      TileFloats weights(sum.weights + (n < count ? query + n : 0) * sum.weight_stride + key,
                         n < count ? left : 0, absent);
      const __m512i high = W::rounded(weights.first, weights.second);
      _mm512_store_si512(to + n * 32, high);
      _mm512_store_si512(to + kTileWords + n * 32, weights.template low<W>(high));
    }
  }
}

// Values of 32 keys from `key` on, columns [at, at + 16 N): [column tile][high, low].
template <class T, int N>
void fill_values(uint16_t* to, const KvRows& values, int64_t key, int64_t at) {
  const auto row = [&](int64_t i) { return i >= 0 && i < values.count ? values.rows[i] : kAbsentRow; };
  for (int64_t pair = 0; pair < 16; ++pair) {
    const int64_t first = key + 2 * pair;
    const uint8_t *a = row(first), *b = row(first + 1);
    if (first + kValueRowsAhead + 1 < values.count) {
      for (int64_t byte = 0; byte < 16 * N * T::kBytes; byte += 64) {
        __builtin_prefetch(row(first + kValueRowsAhead) + at * T::kBytes + byte);
        __builtin_prefetch(row(first + kValueRowsAhead + 1) + at * T::kBytes + byte);
      }
    }
#pragma GCC unroll 2
    for (int t = 0; t < N; t += 2) {
      SplitWords words[2];
      T::pairs(words, a, b, at + 16 * t, values.width - at - 16 * t);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        uint16_t* tile = to + split_words(t + i) + pair * 32;
        _mm512_store_si512(tile, words[i].high);
        if constexpr (T::kLow) _mm512_store_si512(tile + kTileWords, words[i].low);
      }
    }
  }
}

// One tile of weights by four of columns.
template <class Tiles, int Weights>
[[gnu::always_inline]] inline void dot_columns(Tiles& tiles, const uint16_t* values) {
  tiles.template load<6>(values, 64);
  tiles.template dot<0, Weights, 6>();
  tiles.template load<7>(values + split_words(1), 64);
  tiles.template dot<1, Weights, 7>();
  tiles.template load<6>(values + split_words(2), 64);
  tiles.template dot<2, Weights, 6>();
  tiles.template load<7>(values + split_words(3), 64);
  tiles.template dot<3, Weights, 7>();
}

// sums [row][16] to out, columns from `at` on.
inline void write_sums(const WeightedSum& sum, const float* sums, int64_t query, int64_t at) {
  const int64_t width = sum.values.width, rows = sum.queries - query < 16 ? sum.queries - query : 16;
  const __mmask16 mask = TileFloats::mask(width - at);
  for (int64_t n = 0; n < rows; ++n)
    _mm512_mask_storeu_ps(sum.out + (query + n) * width + at, mask, _mm512_load_ps(sums + 16 * n));
}

template <class Tiles, class T, class W>
void few_sums(const WeightedSum& sum, int64_t steps) {
  alignas(64) uint16_t weights[split_words(kMostKeySteps)];
  alignas(64) uint16_t values[split_words(4)];
  alignas(64) float sums[4 * 256];
  Tiles tiles(static_cast<int>(sum.queries), 16);
  fill_weights<W>(weights, sum, 0, steps);
  for (int64_t at = 0; at < sum.values.width; at += 64) {
    zero_sums(tiles);
    for (int64_t step = 0; step < steps; ++step) {
      fill_values<T, 4>(values, sum.values, 32 * step - sum.values.before, at);
      tiles.template load<4>(weights + split_words(step), 64);
      tiles.template load<5>(weights + split_words(step) + kTileWords, 64);
      if constexpr (T::kLow) dot_columns<Tiles, 4>(tiles, values + kTileWords);
      dot_columns<Tiles, 4>(tiles, values);
      dot_columns<Tiles, 5>(tiles, values);
    }
    store_sums(tiles, sums, 64);
    for (int64_t t = 0; t < 4 && at + 16 * t < sum.values.width; ++t)
      write_sums(sum, sums + 256 * t, 0, at + 16 * t);
  }
}

// Two tiles of weights by two of columns.
template <class Tiles, bool Low>
[[gnu::always_inline]] inline void sum_square(Tiles& tiles, const uint16_t* const (&weights)[2],
                                              const uint16_t* values) {
  tiles.template load<4>(weights[0], 64);
  tiles.template load<5>(weights[1], 64);
  if constexpr (Low) {
    tiles.template load<6>(values + kTileWords, 64);
    tiles.template load<7>(values + split_words(1) + kTileWords, 64);
    dot_square(tiles);
  }
  tiles.template load<6>(values, 64);
  tiles.template load<7>(values + split_words(1), 64);
  dot_square(tiles);
  tiles.template load<4>(weights[0] + kTileWords, 64);
  tiles.template load<5>(weights[1] + kTileWords, 64);
  dot_square(tiles);
}

template <class Tiles, class T, class W>
void many_sums(const WeightedSum& sum, int64_t steps) {
  constexpr int64_t kMostTiles = kTiledQueries / 16;
  alignas(64) uint16_t weights[kMostTiles * split_words(kMostKeySteps)];
  alignas(64) uint16_t values[kMostKeySteps * split_words(2)];
  alignas(64) float sums[4 * 256];
  const int64_t query_tiles = (sum.queries + 15) / 16;
  Tiles tiles(16, 16);
  for (int64_t t = 0; t < query_tiles; ++t)
    fill_weights<W>(weights + tile_at(steps, t, 0), sum, 16 * t, steps);
  for (int64_t at = 0; at < sum.values.width; at += 32) {
    for (int64_t t = 0; t < query_tiles; t += 2) {
      const int64_t both = t + 1 < query_tiles ? 2 : 1;
      zero_sums(tiles);
      for (int64_t step = 0; step < steps; ++step) {
        uint16_t* two = values + split_words(2 * step);
        if (t == 0) fill_values<T, 2>(two, sum.values, 32 * step - sum.values.before, at);
        sum_square<Tiles, T::kLow>(
            tiles, {weights + tile_at(steps, t, step), weights + tile_at(steps, t + both - 1, step)}, two);
      }
      store_sums(tiles, sums, 64);
      for (int64_t i = 0; i < 4; ++i) {
        if (i / 2 < both && at + 16 * (i % 2) < sum.values.width)
          write_sums(sum, sums + 256 * i, 16 * (t + i / 2), at + 16 * (i % 2));
      }
    }
  }
}

// REQUIRES: sum.values.before + sum.values.count <= kMostTiledKeys; sum.values.width <= kWidestTiled
template <class Tiles, class T, class W>
void tile_sums(const WeightedSum& sum) {
  const int64_t steps = (sum.values.before + sum.values.count + 31) / 32;
  for (int64_t first = 0; first < sum.queries; first += kTiledQueries) {
    WeightedSum some = sum;
    some.out += first * sum.values.width;
    some.weights += first * sum.weight_stride;
    some.queries = sum.queries - first < kTiledQueries ? sum.queries - first : kTiledQueries;
    some.queries <= 16 ? few_sums<Tiles, T, W>(some, steps) : many_sums<Tiles, T, W>(some, steps);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
