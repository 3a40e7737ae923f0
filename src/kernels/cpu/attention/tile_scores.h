// Scores by matrix tiles of bf16, for more queries than vector_rows.h takes. Included by attention_amx.cpp only.
//
// A tile of sums is 16 keys by 16 queries. Keys lie as rows of 32 columns, queries as pairs of columns; both are sums of two
// bf16 (tile_words.h). A score takes its columns 32 at a time, in order, and of these the products low · high, high · high
// and high · low (key · query). Neither the queries beside it nor the keys do matter to its bits.
//
// Many queries: two tiles of keys by two of queries are under way. Up to 16: four tiles of keys. Tile instructions take 16
// cycles each, in which vectors run at half their rate: between them the next keys are converted and the sums before are written out, in
// pieces that fit what the processor looks ahead.
#pragma once

#include "kernels/cpu/attention/rows.h"
#include "kernels/cpu/attention/tile_words.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kTiledQueries = 96;  // at once
constexpr int64_t kMostSteps = kWidestTiled / 32;
constexpr int64_t kKeyRowsAhead = 16;

// [step][high, low]; step is 32 columns.
constexpr int64_t tile_at(int64_t steps, int64_t tile, int64_t step) {
  return split_words(tile * steps + step);
}

// Blocks of keys that become tiles, a few rows at a time: [tile][step][high, low].
template <class T>
class KeyFiller {
 public:
  // Where rows from `key` on, at most `most`, go. The last key is repeated up to a whole tile.
  KeyFiller(uint16_t* to, const KvRows& keys, int64_t key, int64_t most)
      : to_(to), keys_(keys), key_(key), steps_((keys.width + 31) / 32), whole_(keys.width % 32 == 0) {
    const int64_t left = keys.count - key;
    rows_ = left <= 0 ? 0 : left < most ? (left + 15) / 16 * 16 : most;
  }
  void advance(int64_t rows) {
    const int64_t end = row_ + rows < rows_ ? row_ + rows : rows_;
    for (; row_ < end; ++row_) fill_row();
  }
  void finish() { advance(rows_); }

 private:
  void fill_row() {
    const int64_t key = key_ + row_;
    const uint8_t* row = keys_.rows[key < keys_.count ? key : keys_.count - 1];
    if (key + kKeyRowsAhead < keys_.count) {
      for (int64_t byte = 0; byte < keys_.width * T::kBytes; byte += 64)
        __builtin_prefetch(keys_.rows[key + kKeyRowsAhead] + byte);
    }
    uint16_t* at = to_ + tile_at(steps_, row_ / 16, 0) + row_ % 16 * 32;
    for (int64_t step = 0; step < steps_; ++step, at += split_words(1)) {
      const SplitWords words = T::columns(row, 32 * step, whole_ ? 32 : keys_.width - 32 * step);
      _mm512_store_si512(at, words.high);
      if constexpr (T::kLow) _mm512_store_si512(at + kTileWords, words.low);
    }
  }

  uint16_t* to_;
  const KvRows& keys_;
  int64_t key_, steps_, rows_, row_ = 0;
  bool whole_;
};

// 32 columns of query n, zeros from query `count` on.
template <class W>
SplitWords query_words(const float* const* queries, int64_t n, int64_t count, int64_t column, int64_t width) {
  return TiledF32<W>::split(TileFloats(queries[n < count ? n : 0] + column, n < count ? width - column : 0));
}

// Up to 16 queries, of which those from `count` on are zeros.
template <class W>
void fill_queries(uint16_t* to, const float* const* queries, int64_t count, int64_t width) {
  for (int64_t column = 0; column < width; column += 32, to += split_words(1)) {
    TileF high[16], low[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      const SplitWords words = query_words<W>(queries, n, count, column, width);
      high[n] = _mm512_castsi512_ps(words.high);
      low[n] = _mm512_castsi512_ps(words.low);
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

template <class Tiles>
[[gnu::always_inline]] inline void zero_sums(Tiles& tiles) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
}

template <class Tiles>
[[gnu::always_inline]] inline void store_sums(Tiles& tiles, float* sums) {
  tiles.template store<0>(sums, 64);
  tiles.template store<1>(sums + 256, 64);
  tiles.template store<2>(sums + 512, 64);
  tiles.template store<3>(sums + 768, 64);
}

// Two left factors by two right ones.
template <class Tiles>
[[gnu::always_inline]] inline void dot_square(Tiles& tiles) {
  tiles.template dot<0, 4, 6>();
  tiles.template dot<1, 4, 7>();
  tiles.template dot<2, 5, 6>();
  tiles.template dot<3, 5, 7>();
}

// Up to four tiles of keys.
struct KeyTiles {
  const uint16_t* words;
  int64_t stride;  // words from one to the next
  int64_t count;

  KeyTiles from(int64_t at) const { return {words + at, stride, count}; }
};

// By one of queries in tile Query.
template <class Tiles, int Query>
[[gnu::always_inline]] inline void dot_keys(Tiles& tiles, const KeyTiles& keys) {
  tiles.template load<4>(keys.words, 64);
  tiles.template dot<0, 4, Query>();
  if (keys.count == 1) return;
  tiles.template load<5>(keys.words + keys.stride, 64);
  tiles.template dot<1, 5, Query>();
  if (keys.count == 2) return;
  tiles.template load<4>(keys.words + 2 * keys.stride, 64);
  tiles.template dot<2, 4, Query>();
  if (keys.count == 3) return;
  tiles.template load<5>(keys.words + 3 * keys.stride, 64);
  tiles.template dot<3, 5, Query>();
}

// Calls beside() after the multiplications of each product.
template <class Tiles, bool Low, class Beside>
void score_column(Tiles& tiles, const KeyTiles& keys, const uint16_t* query, int64_t steps,
                  const Beside& beside) {
  zero_sums(tiles);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = split_words(step);
    tiles.template load<6>(query + at, 64);
    tiles.template load<7>(query + at + kTileWords, 64);
    if constexpr (Low) {
      dot_keys<Tiles, 6>(tiles, keys.from(at + kTileWords));
      beside();
    }
    dot_keys<Tiles, 6>(tiles, keys.from(at));
    beside();
    dot_keys<Tiles, 7>(tiles, keys.from(at));
    beside();
  }
}

// The same for two tiles of keys and two of queries.
template <class Tiles, bool Low, class Beside>
void score_square(Tiles& tiles, const uint16_t* keys, const uint16_t* const (&queries)[2], int64_t steps,
                  const Beside& beside) {
  zero_sums(tiles);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = split_words(step), second = at + split_words(steps);
    tiles.template load<6>(queries[0] + at, 64);
    tiles.template load<7>(queries[1] + at, 64);
    if constexpr (Low) {
      tiles.template load<4>(keys + at + kTileWords, 64);
      tiles.template load<5>(keys + second + kTileWords, 64);
      dot_square(tiles);
      beside();
    }
    tiles.template load<4>(keys + at, 64);
    tiles.template load<5>(keys + second, 64);
    dot_square(tiles);
    beside();
    tiles.template load<6>(queries[0] + at + kTileWords, 64);
    tiles.template load<7>(queries[1] + at + kTileWords, 64);
    dot_square(tiles);
    beside();
  }
}

struct ScoreWork {
  float* out;
  int64_t stride;
  const float* const* queries;
  int64_t count;
  const KvRows& keys;
};

// Four tiles of sums that wait to be written out: [key tile][query tile].
struct WaitingSums {
  const float* sums;
  int64_t key, query;
  int64_t query_tiles;  // in a row: 1 or 2
  int64_t next = 4;     // 4: none

  void write_one(const ScoreWork& work) {
    if (next >= 4) return;
    const int64_t first_key = key + 16 * (next / query_tiles), first = query + 16 * (next % query_tiles);
    const int64_t keys = work.keys.count - first_key, queries = work.count - first;
    if (keys > 0 && queries > 0) {
      float* out = work.out + first * work.stride + first_key;
      write_scores(out, work.stride, sums + 256 * next, queries, keys);
    }
    ++next;
  }
  void finish(const ScoreWork& work) {
    while (next < 4) write_one(work);
  }
};

// Up to 16 queries.
template <class Tiles, class T, class W>
void few_scores(const ScoreWork& work) {
  constexpr int64_t kBlock = 64, kWords = 4 * split_words(kMostSteps);
  alignas(64) uint16_t query[split_words(kMostSteps)];
  alignas(64) uint16_t words[2][kWords];
  alignas(64) float sums[2][4 * 256];
  const KvRows& keys = work.keys;
  const int64_t steps = (keys.width + 31) / 32, calls = (T::kLow ? 3 : 2) * steps;
  Tiles tiles(16, 16);  // configured as long as it lives
  fill_queries<W>(query, work.queries, work.count, keys.width);
  KeyFiller<T>(words[0], keys, 0, kBlock).finish();
  WaitingSums waiting{};
  for (int64_t key = 0, turn = 0; key < keys.count; key += kBlock, turn ^= 1) {
    KeyFiller<T> next(words[turn ^ 1], keys, key + kBlock, kBlock);
    const int64_t left = (keys.count - key + 15) / 16;
    const KeyTiles key_tiles{words[turn], split_words(steps), left < 4 ? left : 4};
    score_column<Tiles, T::kLow>(tiles, key_tiles, query, steps, [&] {
      next.advance((kBlock + calls - 1) / calls);
      waiting.write_one(work);
    });
    next.finish();
    waiting.finish(work);
    store_sums(tiles, sums[turn]);
    waiting = {sums[turn], key, 0, 1, 0};
  }
  waiting.finish(work);
}

// Fetches the lines that 32 queries' scores of 32 keys go to.
inline void fetch_scores(const ScoreWork& work, int64_t query, int64_t key) {
  const int64_t end = query + 32 < work.count ? query + 32 : work.count;
  for (int64_t n = query; n < end; ++n) {
    __builtin_prefetch(work.out + n * work.stride + key, 1);
    __builtin_prefetch(work.out + n * work.stride + key + 16, 1);
  }
}

template <class Tiles, class T, class W>
void many_scores(const ScoreWork& work) {
  constexpr int64_t kMostTiles = kTiledQueries / 16, kBlock = 32, kWords = 2 * split_words(kMostSteps);
  alignas(64) uint16_t queries[kMostTiles * split_words(kMostSteps)];
  alignas(64) uint16_t words[2][kWords];
  alignas(64) float sums[2][4 * 256];
  const KvRows& keys = work.keys;
  const int64_t steps = (keys.width + 31) / 32, query_tiles = (work.count + 15) / 16;
  const int64_t calls = (T::kLow ? 3 : 2) * steps * ((query_tiles + 1) / 2);
  Tiles tiles(16, 16);
  for (int64_t t = 0; t < query_tiles; ++t)
    fill_queries<W>(queries + tile_at(steps, t, 0), work.queries + 16 * t, work.count - 16 * t, keys.width);
  KeyFiller<T>(words[0], keys, 0, kBlock).finish();
  WaitingSums waiting{};
  int64_t turn = 0;
  for (int64_t key = 0, half = 0; key < keys.count; key += kBlock, half ^= 1) {
    KeyFiller<T> next(words[half ^ 1], keys, key + kBlock, kBlock);
    for (int64_t t = 0; t < query_tiles; t += 2, turn ^= 1) {
      const int64_t second = t + 1 < query_tiles ? t + 1 : t;
      fetch_scores(work, 16 * t, key);
      score_square<Tiles, T::kLow>(tiles, words[half],
                                   {queries + tile_at(steps, t, 0), queries + tile_at(steps, second, 0)},
                                   steps, [&] {
                                     next.advance((kBlock + calls - 1) / calls);
                                     waiting.write_one(work);
                                   });
      waiting.finish(work);
      store_sums(tiles, sums[turn]);
      waiting = {sums[turn], key, 16 * t, 2, 0};
    }
    next.finish();
  }
  waiting.finish(work);
}

}  // namespace
}  // namespace sluice::kernels::cpu
