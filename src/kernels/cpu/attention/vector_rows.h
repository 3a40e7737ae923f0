// Scores and weighted sums of a few rows by vectors, with the bits of matrix tiles of bf16. Included by attention_amx.cpp only.
//
// For a while after a tile instruction the core's arithmetic of floats runs at half rate, so that a step of answers is faster
// without any: on two cores of an Emerald Rapids 8 to 32 answers of a small model without contexts by a fifth, behind 512 to 1,024
// tokens by 8 to 30 %. What a tile instruction does is done here with 16 keys, or 16 columns, in the lanes of a vector: the even
// and the odd of 32 products in two chains of fused multiply-adds from zero, both added to the sum, subnormal numbers taken as
// zeros.
//
// Keys of a block of 16 are transposed; values are read as they lie. Bytes moved: keys once, values once for every 16 columns,
// from the caches after the first. Two columns of 16 keys, or 16 columns of two values, by N rows take 6 N + 4 instructions.
#pragma once

#include <xmmintrin.h>

#include "kernels/cpu/attention/tile_sums.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kVectorRows = 8;    // at most
constexpr int64_t kSplitFloats = 64;  // of 32 numbers: even and odd ones of high, of low

// As tile instructions take and give numbers.
class WithoutSubnormals {
 public:
  WithoutSubnormals() { _mm_setcsr(kept_ | 0x8040u); }
  ~WithoutSubnormals() { _mm_setcsr(kept_); }
  WithoutSubnormals(const WithoutSubnormals&) = delete;
  WithoutSubnormals& operator=(const WithoutSubnormals&) = delete;

 private:
  const unsigned kept_ = _mm_getcsr();
};

// The first and the second bf16 of each pair.
inline TileF even_floats(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
inline TileF odd_floats(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

inline void store_split(float* to, const SplitWords& words) {
  _mm512_store_ps(to, even_floats(words.high));
  _mm512_store_ps(to + 16, odd_floats(words.high));
  _mm512_store_ps(to + 32, even_floats(words.low));
  _mm512_store_ps(to + 48, odd_floats(words.low));
}

// What a row's 16 columns are as floats, and these as sums of two that bf16 holds.
struct HighLow {
  TileF high, low;
};
template <class T>
struct SplitFloats;

template <class W>
struct SplitFloats<TiledF16<W>> {
  static TileF load(const uint8_t* row, int64_t at, int64_t left) {
    return TiledF16<W>::floats(row + 2 * at, left);
  }
  static HighLow split(TileF x) {
    const TileF high = odd_floats(_mm512_castps_si512(x));
    return {high, _mm512_sub_ps(x, high)};
  }
};

template <class W>
struct SplitFloats<TiledF32<W>> {
  static TileF load(const uint8_t* row, int64_t at, int64_t left) {
    return _mm512_maskz_loadu_ps(TileFloats::mask(left), TiledF32<W>::at_column(row, at));
  }
  static TileF rounded(TileF x) {
    return even_floats(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(W::rounded(x, x))));
  }
  static HighLow split(TileF x) {
    const TileF high = rounded(x);
    return {high, rounded(_mm512_sub_ps(x, high))};
  }
};

template <class W>
struct SplitFloats<TiledBf16<W>> {
  static TileF load(const uint8_t* row, int64_t at, int64_t left) {
    return even_floats(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(TileFloats::mask(left), row + 2 * at)));
  }
  static HighLow split(TileF x) { return {x, _mm512_setzero_ps()}; }
};

// The chains of one step of N rows of x: [low · high, high · high, high · low][row], of even and odd products.
template <bool Low, int N>
struct Chains {
  TileF even[3][N], odd[3][N];

  [[gnu::always_inline]] Chains() {
#pragma GCC unroll 12
    for (int i = 0; i < 3 * N; ++i) even[i / N][i % N] = odd[i / N][i % N] = _mm512_setzero_ps();
  }
  // x: the number's place among the even or the odd ones of each row's high; those of low are 32 behind.
  [[gnu::always_inline]] static void add(TileF (&chains)[3][N], const HighLow& by, const float* x,
                                         int64_t stride) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n, x += stride) {
      const TileF high = _mm512_set1_ps(x[0]);
      if constexpr (Low) chains[0][n] = _mm512_fmadd_ps(by.low, high, chains[0][n]);
      chains[1][n] = _mm512_fmadd_ps(by.high, high, chains[1][n]);
      chains[2][n] = _mm512_fmadd_ps(by.high, _mm512_set1_ps(x[32]), chains[2][n]);
    }
  }
  [[gnu::always_inline]] void finish(TileF (&sums)[N]) const {
#pragma GCC unroll 12
    for (int i = Low ? 0 : N; i < 3 * N; ++i)
      sums[i % N] = _mm512_add_ps(sums[i % N], _mm512_add_ps(even[i / N][i % N], odd[i / N][i % N]));
  }
};

// Calls some<N>(first) until all of `count` rows are covered.
template <class Some>
[[gnu::always_inline]] inline void for_vector_rows(int64_t count, const Some& some) {
  int64_t n = 0;
  for (; n + 4 <= count; n += 4) some.template operator()<4>(n);
  if (count - n == 3) some.template operator()<3>(n);
  if (count - n == 2) some.template operator()<2>(n);
  if (count - n == 1) some.template operator()<1>(n);
}

// Columns of 16 keys from `key` on, side by side: [column][16]. The last key is repeated.
template <class T>
void transpose_keys(float* to, const KvRows& keys, int64_t key) {
  for (int64_t column = 0; column < keys.width; column += 16, to += 256) {
    TileF square[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const uint8_t* row = keys.rows[key + i < keys.count ? key + i : keys.count - 1];
      square[i] = SplitFloats<T>::load(row, column, keys.width - column);
    }
    Avx512::transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_ps(to + 16 * i, square[i]);
  }
}

// REQUIRES: work.count <= kVectorRows
template <class T, class W>
void vector_scores(const ScoreWork& work) {
  alignas(64) float queries[kVectorRows * kMostSteps * kSplitFloats];
  alignas(64) float columns[kMostSteps * 32 * 16];
  const WithoutSubnormals mode;
  const KvRows& keys = work.keys;
  const int64_t steps = (keys.width + 31) / 32, stride = steps * kSplitFloats;
  for (int64_t n = 0; n < work.count; ++n)
    for (int64_t step = 0; step < steps; ++step)
      store_split(queries + n * stride + step * kSplitFloats,
                  query_words<W>(work.queries, n, work.count, 32 * step, keys.width));
  for (int64_t key = 0; key < keys.count; key += 16) {
    transpose_keys<T>(columns, keys, key);
    const __mmask16 mask = TileFloats::mask(keys.count - key);
    for_vector_rows(
        work.count, [&]<int N>(int64_t first) __attribute__((always_inline)) {
          TileF sums[N];
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) sums[n] = _mm512_setzero_ps();
          for (int64_t step = 0; step < steps; ++step) {
            const float* x = queries + first * stride + step * kSplitFloats;
            const float* by = columns + step * 512;
            const int64_t left = keys.width - 32 * step, pairs = left < 32 ? (left + 1) / 2 : 16;
            Chains<T::kLow, N> chains;
            for (int64_t pair = 0; pair < pairs; ++pair, by += 32, ++x) {
              chains.add(chains.even, SplitFloats<T>::split(_mm512_load_ps(by)), x, stride);
              chains.add(chains.odd, SplitFloats<T>::split(_mm512_load_ps(by + 16)), x + 16, stride);
            }
            chains.finish(sums);
          }
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n)
            _mm512_mask_storeu_ps(work.out + (first + n) * work.stride + key, mask, sums[n]);
        });
  }
}

// REQUIRES: sum.queries <= kVectorRows
template <class T, class W>
void vector_sums(const WeightedSum& sum, int64_t steps) {
  alignas(64) float weights[kVectorRows * kMostKeySteps * kSplitFloats];
  const WithoutSubnormals mode;
  const KvRows& values = sum.values;
  const int64_t before = values.before, end = before + values.count, stride = steps * kSplitFloats;
  for (int64_t n = 0; n < sum.queries; ++n) {
    const float* from = sum.weights + n * sum.weight_stride - before;
    for (int64_t key = 0; key < 32 * steps; key += 32)
      store_split(weights + n * stride + key / 32 * kSplitFloats,
                  TiledF32<W>::split(TileFloats(from + key, end - key, before - key)));
  }
  const auto row = [&](int64_t key) {
    return key >= before && key < end ? values.rows[key - before] : kAbsentRow;
  };
  for (int64_t at = 0; at < values.width; at += 16) {
    const int64_t left = values.width - at;
    const __mmask16 mask = TileFloats::mask(left);
    for_vector_rows(
        sum.queries, [&]<int N>(int64_t first) __attribute__((always_inline)) {
          TileF sums[N];
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) sums[n] = _mm512_setzero_ps();
          for (int64_t key = 0; key < end; key += 32) {
            const float* x = weights + first * stride + 2 * key;
            const int64_t pairs = end - key < 32 ? (end - key + 1) / 2 : 16;
            Chains<T::kLow, N> chains;
            for (int64_t pair = 0; pair < pairs; ++pair, ++x) {
              const uint8_t *a = row(key + 2 * pair), *b = row(key + 2 * pair + 1);
              chains.add(chains.even, SplitFloats<T>::split(SplitFloats<T>::load(a, at, left)), x, stride);
              chains.add(chains.odd, SplitFloats<T>::split(SplitFloats<T>::load(b, at, left)), x + 16,
                         stride);
            }
            chains.finish(sums);
          }
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n)
            _mm512_mask_storeu_ps(sum.out + (first + n) * values.width + at, mask, sums[n]);
        });
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
