// Attention over keys and values of one head that are kept as int8: products of bytes (VNNI) in the place of conversions to
// f32, which limit the float kernels. Queries and weights become integers of 16 bits, as two bytes each: what is multiplied is
// exact to 2^-16 of the largest, and sums are exact, so that no order of keys changes a bit.
//
// Scores: 16 keys of 64 columns are transposed in words of four bytes, so that a lane holds a key; a query's words are broadcast.
// Sums: four keys are interleaved, so that a lane holds a column; the weights of four keys are broadcast. Rows are read once for
// up to 32 queries. Included by the levels that have VNNI and 512 bits.
#pragma once

#include "kernels/cpu/attention/attention.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kByteColumns = 64;   // of one vector
constexpr int64_t kWidestBytes = 576;  // of a row
constexpr int64_t kMostByteKeys = 512;
constexpr int64_t kByteQueries = 32;      // at once
constexpr float kLeastForBytes = 1e-30f;  // what is smaller counts as 0

// Up to 64 bytes, the rest zero.
inline __m512i byte_columns(const uint8_t* from, int64_t left) {
  if (left >= kByteColumns) return _mm512_loadu_si512(from);
  alignas(64) uint8_t padded[kByteColumns] = {};
  __builtin_memcpy(padded, from, static_cast<size_t>(left));
  return _mm512_loadu_si512(padded);
}

inline __m512i broadcast_word(const uint8_t* from) {
  int32_t word;
  __builtin_memcpy(&word, from, 4);
  return _mm512_set1_epi32(word);
}

inline void store_bytes(uint8_t* to, __m512i words) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(words));
}

// The largest magnitude of a row; NaN where one is not finite.
template <class I, class Load>
float largest_finite(int64_t count, const Load& load) {
  auto largest = I::set1(0.0f), poison = I::set1(0.0f);
  for (int64_t i = 0; i < count; i += I::kWidth) {
    const auto value = load(i);
    largest = I::max(largest, I::max(value, I::sub(I::set1(0.0f), value)));
    poison = I::add(poison, I::sub(value, value));
  }
  const float spoilt = I::reduce_add(poison);
  return spoilt == 0.0f ? I::reduce_max(largest) : spoilt;
}

// x ~ scale * (256 * high + low), both signed.
struct ByteQuery {
  alignas(64) uint8_t high[kWidestBytes];
  alignas(64) uint8_t low[kWidestBytes];
  float scale;
  int32_t high_start, low_start;  // what takes 128 off each byte of a key that was added to it
};

template <class I>
void make_query(ByteQuery& query, const float* x, int64_t width) {
  constexpr float kLargest = 32512.0f;  // 127 * 256: the high byte stays in its range
  const auto load = [&](int64_t i) { return load_floats<I>(x + i, width - i); };
  const float largest = largest_finite<I>(width, load);
  query.scale = largest / kLargest;
  const auto inverse = I::set1(largest > kLeastForBytes ? kLargest / largest : 0.0f);
  auto high_sum = _mm512_setzero_si512(), low_sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < (width + kByteColumns - 1) / kByteColumns * kByteColumns; i += I::kWidth) {
    const __m512i value = i < width ? _mm512_cvtps_epi32(I::mul(load(i), inverse)) : _mm512_setzero_si512();
    const __m512i shifted = _mm512_srli_epi32(_mm512_add_epi32(value, _mm512_set1_epi32(32768 + 128)), 8);
    const __m512i high = _mm512_sub_epi32(shifted, _mm512_set1_epi32(128));
    const __m512i low = _mm512_sub_epi32(value, _mm512_slli_epi32(high, 8));
    store_bytes(query.high + i, high);
    store_bytes(query.low + i, low);
    high_sum = _mm512_add_epi32(high_sum, high);
    low_sum = _mm512_add_epi32(low_sum, low);
  }
  alignas(64) int32_t sums[2][16];
  _mm512_storeu_si512(sums[0], high_sum);
  _mm512_storeu_si512(sums[1], low_sum);
  query.high_start = query.low_start = 0;
  for (int i = 0; i < 16; ++i) {
    query.high_start -= 128 * sums[0][i];
    query.low_start -= 128 * sums[1][i];
  }
}

// Words of four columns of 16 keys, plus 128 each byte: to[word][key]. Past the last key its row is repeated.
template <class I>
void transpose_bytes(uint8_t* to, const KvRows& keys, int64_t key) {
  for (int64_t column = 0; column < keys.width; column += kByteColumns, to += 16 * 64) {
    typename I::F square[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      const uint8_t* row = keys.rows[key + r < keys.count ? key + r : keys.count - 1];
      square[r] = _mm512_castsi512_ps(
          _mm512_xor_si512(byte_columns(row + column, keys.width - column), _mm512_set1_epi8(-128)));
    }
    I::transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + r * 64, _mm512_castps_si512(square[r]));
  }
}

template <class I, int N>
void byte_score_tile(float* out, int64_t stride, const ByteQuery* queries, const KvRows& keys, int64_t key,
                     const uint8_t* words) {
  __m512i high[N][2], low[N][2];  // even and odd words
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    high[n][0] = _mm512_set1_epi32(queries[n].high_start);
    low[n][0] = _mm512_set1_epi32(queries[n].low_start);
    high[n][1] = low[n][1] = _mm512_setzero_si512();
  }
  for (int64_t column = 0; column < keys.width; column += 8, words += 128) {
    const __m512i pair[2] = {_mm512_loadu_si512(words), _mm512_loadu_si512(words + 64)};
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        high[n][i] =
            _mm512_dpbusd_epi32(high[n][i], pair[i], broadcast_word(queries[n].high + column + 4 * i));
        low[n][i] = _mm512_dpbusd_epi32(low[n][i], pair[i], broadcast_word(queries[n].low + column + 4 * i));
      }
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    const auto whole = I::fma(_mm512_cvtepi32_ps(_mm512_add_epi32(high[n][0], high[n][1])), I::set1(256.0f),
                              _mm512_cvtepi32_ps(_mm512_add_epi32(low[n][0], low[n][1])));
    const auto scales =
        I::mul(load_floats<I>(keys.scales + key, keys.count - key), I::set1(queries[n].scale));
    store_floats<I>(out + n * stride + key, I::mul(whole, scales), keys.count - key);
  }
}

// REQUIRES: keys.width <= kWidestBytes
template <class I>
void byte_scores(float* out, int64_t stride, const float* const* queries, int64_t query_count,
                 const KvRows& keys) {
  alignas(64) uint8_t words[kWidestBytes * 16];
  ByteQuery bytes[kByteQueries];
  for (int64_t first = 0; first < query_count; first += kByteQueries) {
    const int64_t count = query_count - first < kByteQueries ? query_count - first : kByteQueries;
    for (int64_t n = 0; n < count; ++n) make_query<I>(bytes[n], queries[first + n], keys.width);
    for (int64_t key = 0; key < keys.count; key += 16) {
      prefetch_rows(keys, key + kRowsAhead, 16, 1);
      transpose_bytes<I>(words, keys, key);
      for_tiles<4>(0, count, [&]<int N>(int64_t n) {
        byte_score_tile<I, N>(out + (first + n) * stride, stride, bytes + n, keys, key, words);
      });
    }
  }
}

// weight * scale of a value ~ factor * (256 * high + low), both without sign.
struct ByteWeights {
  alignas(64) uint8_t high[kMostByteKeys];
  alignas(64) uint8_t low[kMostByteKeys];
  float factor;
};

template <class I>
void make_weights(ByteWeights& out, const float* weights, const KvRows& values) {
  constexpr float kLargest = 65535.0f;
  const auto load = [&](int64_t i) {
    return I::mul(load_floats<I>(weights + i, values.count - i),
                  load_floats<I>(values.scales + i, values.count - i));
  };
  const float largest = largest_finite<I>(values.count, load);
  out.factor = largest / kLargest;
  const auto inverse = I::set1(largest > kLeastForBytes ? kLargest / largest : 0.0f);
  for (int64_t i = 0; i < values.count; i += I::kWidth) {
    const __m512i value = _mm512_cvtps_epi32(I::mul(load(i), inverse));
    store_bytes(out.high + i, _mm512_srli_epi32(value, 8));
    store_bytes(out.low + i, _mm512_and_si512(value, _mm512_set1_epi32(255)));
  }
}

// Four values of 64 columns, column by column: 128-bit lane l of vector j has columns 16 l + 4 j to 16 l + 4 j + 3.
inline void interleave_values(__m512i (&to)[4], const KvRows& values, int64_t key, int64_t at) {
  __m512i rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    rows[i] = key + i < values.count ? byte_columns(values.rows[key + i] + at, values.width - at)
                                     : _mm512_setzero_si512();
  const __m512i low_a = _mm512_unpacklo_epi8(rows[0], rows[1]),
                low_b = _mm512_unpacklo_epi8(rows[2], rows[3]);
  const __m512i high_a = _mm512_unpackhi_epi8(rows[0], rows[1]),
                high_b = _mm512_unpackhi_epi8(rows[2], rows[3]);
  to[0] = _mm512_unpacklo_epi16(low_a, low_b);
  to[1] = _mm512_unpackhi_epi16(low_a, low_b);
  to[2] = _mm512_unpacklo_epi16(high_a, high_b);
  to[3] = _mm512_unpackhi_epi16(high_a, high_b);
}

// Lanes as interleave_values leaves them, to columns in order.
template <class I>
void in_column_order(typename I::F (&v)[4]) {
  const auto a = _mm512_shuffle_f32x4(v[0], v[1], 0x44), b = _mm512_shuffle_f32x4(v[0], v[1], 0xee);
  const auto c = _mm512_shuffle_f32x4(v[2], v[3], 0x44), d = _mm512_shuffle_f32x4(v[2], v[3], 0xee);
  v[0] = _mm512_shuffle_f32x4(a, c, 0x88);
  v[1] = _mm512_shuffle_f32x4(a, c, 0xdd);
  v[2] = _mm512_shuffle_f32x4(b, d, 0x88);
  v[3] = _mm512_shuffle_f32x4(b, d, 0xdd);
}

// values(key, four vectors) gives four interleaved values.
template <class I, int N, class Values>
void byte_sum_tile(const WeightedSum& sum, int64_t query, const ByteWeights* weights, int64_t at,
                   const Values& values) {
  __m512i high[N][4], low[N][4];
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) high[n][j] = low[n][j] = _mm512_setzero_si512();
  }
  for (int64_t key = 0; key < sum.values.count; key += 4) {
    __m512i four[4];
    values(key, four);
#pragma GCC unroll 3
    for (int n = 0; n < N; ++n) {
      const __m512i upper = broadcast_word(weights[n].high + key),
                    lower = broadcast_word(weights[n].low + key);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        high[n][j] = _mm512_dpbusd_epi32(high[n][j], upper, four[j]);
        low[n][j] = _mm512_dpbusd_epi32(low[n][j], lower, four[j]);
      }
    }
  }
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n) {
    typename I::F whole[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      whole[j] =
          I::mul(I::fma(_mm512_cvtepi32_ps(high[n][j]), I::set1(256.0f), _mm512_cvtepi32_ps(low[n][j])),
                 I::set1(weights[n].factor));
    in_column_order<I>(whole);
    float* to = sum.out + (query + n) * sum.values.width + at;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      if (const int64_t left = sum.values.width - at - 16 * j; left > 0)
        store_floats<I>(to + 16 * j, whole[j], left);
  }
}

// REQUIRES: sum.values.count <= kMostByteKeys
template <class I>
void byte_weighted_sum(const WeightedSum& sum) {
  constexpr int kTile = 3;  // queries whose sums fit registers
  const KvRows& values = sum.values;
  ByteWeights weights[kByteQueries];
  alignas(64) uint8_t packed[kMostByteKeys * kByteColumns];
  for (int64_t first = 0; first < sum.queries; first += kByteQueries) {
    const int64_t count = sum.queries - first < kByteQueries ? sum.queries - first : kByteQueries;
    for (int64_t n = 0; n < count; ++n)
      make_weights<I>(weights[n], sum.weights + (first + n) * sum.weight_stride, values);
    for (int64_t at = 0; at < values.width; at += kByteColumns) {
      const auto interleaved = [&](int64_t key, __m512i(&four)[4]) {
        for (int64_t i = key + kRowsAhead; i < key + kRowsAhead + 4 && i < values.count; ++i)
          __builtin_prefetch(values.rows[i] + at);
        interleave_values(four, values, key, at);
      };
      const auto stored = [&](int64_t key, __m512i(&four)[4]) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) four[j] = _mm512_loadu_si512(packed + (key + j) * kByteColumns);
      };
      if (count <= kTile) {
        for_tiles<kTile>(0, count, [&]<int N>(int64_t n) {
          byte_sum_tile<I, N>(sum, first + n, weights + n, at, interleaved);
        });
        continue;
      }
      for (int64_t key = 0; key < values.count; key += 4) {
        __m512i four[4];
        interleaved(key, four);
        for (int j = 0; j < 4; ++j) _mm512_storeu_si512(packed + (key + j) * kByteColumns, four[j]);
      }
      for_tiles<kTile>(
          0, count, [&]<int N>(int64_t n) { byte_sum_tile<I, N>(sum, first + n, weights + n, at, stored); });
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
