// Weighted sums of values by matrix tiles of bf16, for more queries than vector_rows.h takes. Included by attention_amx.cpp only.
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
constexpr int64_t kValueRowsAhead = 16;

alignas(64) constexpr uint8_t kAbsentRow[kWidestTiled * 4] = {};

// Weights of up to 16 queries. Rows of a tile beyond the last query stay as they are: they become sums that nobody reads.
template <class W>
void fill_weights(uint16_t* to, const WeightedSum& sum, int64_t query, int64_t steps) {
  const int64_t before = sum.values.before, left = sum.queries - query, rows = left < 16 ? left : 16;
  for (int64_t n = 0; n < rows; ++n) {
    const float* from = sum.weights + (query + n) * sum.weight_stride - before;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t key = 32 * step;
      const SplitWords weights =
          TiledF32<W>::split(TileFloats(from + key, before + sum.values.count - key, before - key));
      uint16_t* row = to + split_words(step) + n * 32;
      _mm512_store_si512(row, weights.high);
      _mm512_store_si512(row + kTileWords, weights.low);
    }
  }
}

// Values of 32 keys, columns [at, at + 16 N), that become tiles a few keys at a time: [column tile][high, low].
template <class T, int N>
class ValueFiller {
 public:
  // From `key` on, which may be less than 0: keys that are not there are zeros.
  ValueFiller(uint16_t* to, const KvRows& values, int64_t key, int64_t at)
      : to_(to), values_(values), key_(key), at_(at), whole_(at + 16 * N <= values.width) {}
  void advance(int64_t pairs) {
    const int64_t end = pair_ + pairs < 16 ? pair_ + pairs : 16;
    for (; pair_ < end; ++pair_) fill_pair();
  }
  void finish() { advance(16); }

 private:
  const uint8_t* row(int64_t key) const {
    return key >= 0 && key < values_.count ? values_.rows[key] : kAbsentRow;
  }
  void fetch(int64_t key) const {
    if (key + 1 >= values_.count) return;
    for (int64_t byte = 0; byte < 16 * N * T::kBytes; byte += 64) {
      __builtin_prefetch(row(key) + at_ * T::kBytes + byte);
      __builtin_prefetch(row(key + 1) + at_ * T::kBytes + byte);
    }
  }
  void fill_pair() {
    const int64_t key = key_ + 2 * pair_;
    const uint8_t *a = row(key), *b = row(key + 1);
    fetch(key + kValueRowsAhead);
#pragma GCC unroll 2
    for (int t = 0; t < N; t += 2) {
      SplitWords words[2];
      T::pairs(words, a, b, at_ + 16 * t, whole_ ? 32 : values_.width - at_ - 16 * t);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        uint16_t* tile = to_ + split_words(t + i) + pair_ * 32;
        _mm512_store_si512(tile, words[i].high);
        if constexpr (T::kLow) _mm512_store_si512(tile + kTileWords, words[i].low);
      }
    }
  }

  uint16_t* to_;
  const KvRows& values_;
  int64_t key_, at_, pair_ = 0;
  bool whole_;
};

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
  alignas(64) uint16_t values[2][split_words(4)];
  alignas(64) float sums[4 * 256];
  constexpr int64_t kPairs = T::kLow ? 6 : 8;  // beside four multiplications
  const int64_t before = sum.values.before;
  Tiles tiles(static_cast<int>(sum.queries), 16);
  fill_weights<W>(weights, sum, 0, steps);
  for (int64_t at = 0; at < sum.values.width; at += 64) {
    zero_sums(tiles);
    ValueFiller<T, 4>(values[0], sum.values, -before, at).finish();
    for (int64_t step = 0, turn = 0; step < steps; ++step, turn ^= 1) {
      ValueFiller<T, 4> next(values[turn ^ 1], sum.values, 32 * (step + 1) - before, at);
      const int64_t pairs = step + 1 < steps ? kPairs : 0;
      tiles.template load<4>(weights + split_words(step), 64);
      tiles.template load<5>(weights + split_words(step) + kTileWords, 64);
      if constexpr (T::kLow) {
        dot_columns<Tiles, 4>(tiles, values[turn] + kTileWords);
        next.advance(pairs);
      }
      dot_columns<Tiles, 4>(tiles, values[turn]);
      next.advance(pairs);
      dot_columns<Tiles, 5>(tiles, values[turn]);
      next.advance(pairs);
    }
    store_sums(tiles, sums);
    for (int64_t t = 0; t < 4 && at + 16 * t < sum.values.width; ++t)
      write_sums(sum, sums + 256 * t, 0, at + 16 * t);
  }
}

// Two tiles of weights by two of columns. Calls beside() after every four multiplications.
template <class Tiles, bool Low, class Beside>
[[gnu::always_inline]] inline void sum_square(Tiles& tiles, const uint16_t* const (&weights)[2],
                                              const uint16_t* values, const Beside& beside) {
  tiles.template load<4>(weights[0], 64);
  tiles.template load<5>(weights[1], 64);
  if constexpr (Low) {
    tiles.template load<6>(values + kTileWords, 64);
    tiles.template load<7>(values + split_words(1) + kTileWords, 64);
    dot_square(tiles);
    beside();
  }
  tiles.template load<6>(values, 64);
  tiles.template load<7>(values + split_words(1), 64);
  dot_square(tiles);
  beside();
  tiles.template load<4>(weights[0] + kTileWords, 64);
  tiles.template load<5>(weights[1] + kTileWords, 64);
  dot_square(tiles);
  beside();
}

// Tiles that lie in the second cache.
inline void fetch_split(const uint16_t* words) {
  for (int64_t line = 0; line < split_words(1); line += 32) __builtin_prefetch(words + line);
}

template <class Tiles, class T, class W>
void many_sums(const WeightedSum& sum, int64_t steps) {
  constexpr int64_t kMostTiles = kTiledQueries / 16;
  constexpr int64_t kPairs = T::kLow ? 6 : 8;
  alignas(64) uint16_t weights[kMostTiles * split_words(kMostKeySteps)];
  alignas(64) uint16_t values[kMostKeySteps * split_words(2)];
  alignas(64) float sums[4 * 256];
  const int64_t query_tiles = (sum.queries + 15) / 16, before = sum.values.before;
  Tiles tiles(16, 16);
  for (int64_t t = 0; t < query_tiles; ++t)
    fill_weights<W>(weights + tile_at(steps, t, 0), sum, 16 * t, steps);
  for (int64_t at = 0; at < sum.values.width; at += 32) {
    ValueFiller<T, 2>(values, sum.values, -before, at).finish();
    for (int64_t t = 0; t < query_tiles; t += 2) {
      const int64_t both = t + 1 < query_tiles ? 2 : 1;
      zero_sums(tiles);
      for (int64_t step = 0; step < steps; ++step) {
        const bool fills = t == 0 && step + 1 < steps;
        const int64_t next_step = fills ? step + 1 : 0;
        ValueFiller<T, 2> next(values + split_words(2 * next_step), sum.values, 32 * next_step - before, at);
        const uint16_t *first = weights + tile_at(steps, t, step),
                       *second = weights + tile_at(steps, t + both - 1, step);
        fetch_split(first + split_words(1));
        fetch_split(second + split_words(1));
        sum_square<Tiles, T::kLow>(tiles, {first, second}, values + split_words(2 * step),
                                   [&] { next.advance(fills ? kPairs : 0); });
      }
      store_sums(tiles, sums);
      for (int64_t i = 0; i < 4; ++i) {
        if (i / 2 < both && at + 16 * (i % 2) < sum.values.width)
          write_sums(sum, sums + 256 * i, 16 * (t + i / 2), at + 16 * (i % 2));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
