// Scores by matrix tiles of bf16, for every number of queries. Included by attention_amx.cpp only.
//
// A tile of sums is 16 keys by 16 queries. Keys lie as rows of 32 columns, queries as pairs of columns; both are sums of two
// bf16 (tile_words.h). A score takes its columns 32 at a time, in order, and of these the products low · high, high · high
// and high · low (key · query). Neither the queries beside it nor the keys do matter to its bits.
//
// Many queries: two tiles of keys by two of queries are under way. Up to 16: four tiles of keys.
#pragma once

#include "kernels/cpu/attention/rows.h"
#include "kernels/cpu/attention/tile_words.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kTiledQueries = 96;  // at once
constexpr int64_t kMostSteps = kWidestTiled / 32;

// [step][high, low]; step is 32 columns.
constexpr int64_t tile_at(int64_t steps, int64_t tile, int64_t step) {
  return split_words(tile * steps + step);
}

// 16 keys, their last one repeated where there are fewer.
template <class T>
void fill_keys(uint16_t* to, const KvRows& keys, int64_t key) {
  for (int64_t r = 0; r < 16; ++r) {
    const uint8_t* row = keys.rows[key + r < keys.count ? key + r : keys.count - 1];
    uint16_t* at = to + r * 32;
    for (int64_t column = 0; column < keys.width; column += 32, at += split_words(1)) {
      const SplitWords words = T::columns(row, column, keys.width - column);
      _mm512_store_si512(at, words.high);
      if constexpr (T::kLow) _mm512_store_si512(at + kTileWords, words.low);
    }
  }
}

// Up to 16 queries, of which those from `count` on are zeros.
template <class W>
void fill_queries(uint16_t* to, const float* const* queries, int64_t count, int64_t width) {
  for (int64_t column = 0; column < width; column += 32, to += split_words(1)) {
    TileF high[16], low[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      const TileFloats columns(queries[n < count ? n : 0] + column, n < count ? width - column : 0);
      const __m512i words = W::rounded(columns.first, columns.second);
      high[n] = _mm512_castsi512_ps(words);
      low[n] = _mm512_castsi512_ps(columns.template low<W>(words));
    }
    Avx512::transpose(high);
    Avx512::transpose(low);
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; ++pair) {
      _mm512_store_ps(to + pair * 32, high[pair]);
      _mm512_store_ps(to + kTileWords + pair * 32, low[pair]);
    }
  }
}

// One tile of sums [key][query] to out[query][key].
inline void write_scores(float* out, int64_t stride, const float* sums, int64_t queries, int64_t keys) {
  TileF square[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) square[i] = _mm512_load_ps(sums + 16 * i);
  Avx512::transpose(square);
  const __mmask16 mask = TileFloats::mask(keys);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i >= queries) break;
    _mm512_mask_storeu_ps(out + i * stride, mask, square[i]);
  }
}

// The same of tiles of four queries.
inline void write_few_scores(float* out, int64_t stride, const float* sums, int64_t queries, int64_t keys) {
  const __m512i even = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
  TileF v[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) v[i] = _mm512_load_ps(sums + 16 * i);
  const TileF a = _mm512_permutex2var_ps(v[0], even, v[1]), b = _mm512_permutex2var_ps(v[2], even, v[3]);
  const TileF c = _mm512_permutex2var_ps(v[0], odd, v[1]), d = _mm512_permutex2var_ps(v[2], odd, v[3]);
  const TileF rows[4] = {_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee),
                         _mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee)};
  const __mmask16 mask = TileFloats::mask(keys);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if (i >= queries) break;
    _mm512_mask_storeu_ps(out + i * stride, mask, rows[i]);
  }
}

template <class Tiles>
[[gnu::always_inline]] inline void zero_sums(Tiles& tiles) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
}

template <class Tiles>
[[gnu::always_inline]] inline void store_sums(Tiles& tiles, float* sums, int64_t row_bytes) {
  const int64_t tile = 4 * row_bytes;  // floats of 16 rows
  tiles.template store<0>(sums, row_bytes);
  tiles.template store<1>(sums + tile, row_bytes);
  tiles.template store<2>(sums + 2 * tile, row_bytes);
  tiles.template store<3>(sums + 3 * tile, row_bytes);
}

// Two left factors by two right ones.
template <class Tiles>
[[gnu::always_inline]] inline void dot_square(Tiles& tiles) {
  tiles.template dot<0, 4, 6>();
  tiles.template dot<1, 4, 7>();
  tiles.template dot<2, 5, 6>();
  tiles.template dot<3, 5, 7>();
}

// Four tiles of keys by one of queries in tile Query.
template <class Tiles, int Query>
[[gnu::always_inline]] inline void dot_keys(Tiles& tiles, const uint16_t* const (&keys)[4], int64_t at) {
  tiles.template load<4>(keys[0] + at, 64);
  tiles.template dot<0, 4, Query>();
  tiles.template load<5>(keys[1] + at, 64);
  tiles.template dot<1, 5, Query>();
  tiles.template load<4>(keys[2] + at, 64);
  tiles.template dot<2, 4, Query>();
  tiles.template load<5>(keys[3] + at, 64);
  tiles.template dot<3, 5, Query>();
}

template <class Tiles, bool Low>
void score_column(Tiles& tiles, const uint16_t* const (&keys)[4], const uint16_t* query, int64_t steps) {
  zero_sums(tiles);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = split_words(step);
    tiles.template load<6>(query + at, 64);
    tiles.template load<7>(query + at + kTileWords, 64);
    if constexpr (Low) dot_keys<Tiles, 6>(tiles, keys, at + kTileWords);
    dot_keys<Tiles, 6>(tiles, keys, at);
    dot_keys<Tiles, 7>(tiles, keys, at);
  }
}

template <class Tiles, bool Low>
void score_square(Tiles& tiles, const uint16_t* const (&keys)[2], const uint16_t* const (&queries)[2],
                  int64_t steps) {
  zero_sums(tiles);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = split_words(step);
    tiles.template load<6>(queries[0] + at, 64);
    tiles.template load<7>(queries[1] + at, 64);
    if constexpr (Low) {
      tiles.template load<4>(keys[0] + at + kTileWords, 64);
      tiles.template load<5>(keys[1] + at + kTileWords, 64);
      dot_square(tiles);
    }
    tiles.template load<4>(keys[0] + at, 64);
    tiles.template load<5>(keys[1] + at, 64);
    dot_square(tiles);
    tiles.template load<6>(queries[0] + at + kTileWords, 64);
    tiles.template load<7>(queries[1] + at + kTileWords, 64);
    dot_square(tiles);
  }
}

struct ScoreWork {
  float* out;
  int64_t stride;
  const float* const* queries;
  int64_t count;
  const KvRows& keys;
};

// Fills up to four tiles of keys and gives how many there are.
template <class T, int N>
int64_t fill_key_tiles(const uint16_t* (&tiles)[N], uint16_t* words, const KvRows& keys, int64_t key) {
  const int64_t steps = (keys.width + 31) / 32, left = (keys.count - key + 15) / 16;
  const int64_t count = left < N ? left : N;
  prefetch_rows(keys, key + 16 * N, 16 * N, T::kBytes);
  for (int64_t t = 0; t < N; ++t) {
    uint16_t* to = words + tile_at(steps, t < count ? t : 0, 0);
    tiles[t] = to;
    if (t < count) fill_keys<T>(to, keys, key + 16 * t);
  }
  return count;
}

template <class Tiles, class T, class W>
void few_scores(const ScoreWork& work) {
  alignas(64) uint16_t query[split_words(kMostSteps)];
  alignas(64) uint16_t words[4 * split_words(kMostSteps)];
  alignas(64) float sums[4 * 256];
  const KvRows& keys = work.keys;
  const int64_t steps = (keys.width + 31) / 32;
  const bool four = work.count <= 4;
  const int64_t row_bytes = four ? 16 : 64;
  Tiles tiles(16, four ? 4 : 16);  // configured as long as it lives
  fill_queries<W>(query, work.queries, work.count, keys.width);
  for (int64_t key = 0; key < keys.count; key += 64) {
    const uint16_t* at[4];
    const int64_t count = fill_key_tiles<T>(at, words, keys, key);
    score_column<Tiles, T::kLow>(tiles, at, query, steps);
    store_sums(tiles, sums, row_bytes);
    for (int64_t t = 0; t < count; ++t) {
      const int64_t first = key + 16 * t;
      (four ? write_few_scores : write_scores)(work.out + first, work.stride, sums + 4 * row_bytes * t,
                                               work.count, keys.count - first);
    }
  }
}

template <class Tiles, class T, class W>
void many_scores(const ScoreWork& work) {
  constexpr int64_t kMostTiles = kTiledQueries / 16;
  alignas(64) uint16_t queries[kMostTiles * split_words(kMostSteps)];
  alignas(64) uint16_t words[2 * split_words(kMostSteps)];
  alignas(64) float sums[4 * 256];
  const KvRows& keys = work.keys;
  const int64_t steps = (keys.width + 31) / 32, query_tiles = (work.count + 15) / 16;
  Tiles tiles(16, 16);
  for (int64_t t = 0; t < query_tiles; ++t)
    fill_queries<W>(queries + tile_at(steps, t, 0), work.queries + 16 * t, work.count - 16 * t, keys.width);
  for (int64_t key = 0; key < keys.count; key += 32) {
    const uint16_t* key_tiles[2];
    const int64_t count = fill_key_tiles<T>(key_tiles, words, keys, key);
    for (int64_t t = 0; t < query_tiles; t += 2) {
      const int64_t both = t + 1 < query_tiles ? 2 : 1;
      score_square<Tiles, T::kLow>(
          tiles, key_tiles, {queries + tile_at(steps, t, 0), queries + tile_at(steps, t + both - 1, 0)},
          steps);
      store_sums(tiles, sums, 64);
      for (int64_t i = 0; i < 4; ++i) {
        if (i / 2 >= count || i % 2 >= both) continue;
        const int64_t query = 16 * (t + i % 2), first = key + 16 * (i / 2);
        write_scores(work.out + query * work.stride + first, work.stride, sums + 256 * i, work.count - query,
                     keys.count - first);
      }
    }
  }
}

// REQUIRES: keys.width <= kWidestTiled
template <class Tiles, class T, class W>
void tile_scores(const ScoreWork& work) {
  for (int64_t first = 0; first < work.count; first += kTiledQueries) {
    const int64_t count = work.count - first < kTiledQueries ? work.count - first : kTiledQueries;
    const ScoreWork some{work.out + first * work.stride, work.stride, work.queries + first, count, work.keys};
    count <= 16 ? few_scores<Tiles, T, W>(some) : many_scores<Tiles, T, W>(some);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
