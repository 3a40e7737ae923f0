// The pieces of attention over keys and values of one head. Included by the level files only. A query's
// arithmetic is the same whichever queries share its tile.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/lane_scores.h"
#include "kernels/cpu/attention/square_scores.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

template <class I, class T, int R, int N>
void score_tile(float* out, int64_t stride, const float* const* queries, const KvRows& keys, int64_t key) {
  const uint8_t* rows[R];
  const float* x[N];
  float results[R][N];
  for (int r = 0; r < R; ++r) rows[r] = keys.rows[key + r];
  for (int n = 0; n < N; ++n) x[n] = queries[n];
  dot_tile<I, T, R, N>(rows, x, keys.width, results);
  for (int r = 0; r < R; ++r) {
    const float scale = keys.scales == nullptr ? 1.0f : keys.scales[key + r];
    for (int n = 0; n < N; ++n) out[n * stride + key + r] = results[r][n] * scale;
  }
}

template <class I, class T>
void scores_as(float* out, int64_t stride, const float* const* queries, int64_t query_count,
               const KvRows& keys) {
  for_tiles<I::kTokenTile>(0, query_count, [&]<int N>(int64_t query) {
    int64_t key = 0;
    float* to = out + query * stride;
    for (; key + I::kRowTile <= keys.count; key += I::kRowTile) {
      prefetch_rows(keys, key + kRowsAhead, I::kRowTile, T::kBytes);
      score_tile<I, T, I::kRowTile, N>(to, stride, queries + query, keys, key);
    }
    for (; key < keys.count; ++key) score_tile<I, T, 1, N>(to, stride, queries + query, keys, key);
  });
}

// How the level computes scores of rows of one width, whatever the number of queries.
template <class I, class T>
void scores_of(float* out, int64_t stride, const float* const* queries, int64_t query_count,
               const KvRows& keys) {
  if constexpr (requires(typename I::F(&m)[I::kWidth]) { I::sums_of_rows(m); }) {
    if (keys.width <= kWidestTransposed) return square_scores<I, T>(out, stride, queries, query_count, keys);
  }
  if constexpr (has_lanes<I>()) {
    if (keys.width <= kWidestTransposed) return lane_scores_of<I, T>(out, stride, queries, query_count, keys);
  }
  scores_as<I, T>(out, stride, queries, query_count, keys);
}

template <class I>
void scores(float* out, int64_t stride, const float* const* queries, int64_t query_count,
            const KvRows& keys) {
  switch (keys.type) {
    case DType::F32:
      return scores_of<I, PlainF32<I>>(out, stride, queries, query_count, keys);
    case DType::F16:
      return scores_of<I, PlainF16<I>>(out, stride, queries, query_count, keys);
    case DType::BF16:
      return scores_of<I, PlainBf16<I>>(out, stride, queries, query_count, keys);
    case DType::I8:
      if constexpr (requires { I::byte_scores(out, stride, queries, query_count, keys); }) {
        if (keys.width <= I::kWidestByteRow) return I::byte_scores(out, stride, queries, query_count, keys);
      }
      return scores_of<I, PlainI8<I>>(out, stride, queries, query_count, keys);
    default:
      __builtin_trap();  // the back-end checks the type
  }
}

struct LogitRange {
  float largest, smallest;
};

// Raw products to logits, in place.
template <class I>
LogitRange make_logits(float* scores, int64_t count, const ScoreRule& rule, int64_t distance) {
  static constexpr float kIota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto logit_at = [=](int64_t i, int64_t left) __attribute__((always_inline)) {
    auto logit = I::mul(load_floats<I>(scores + i, left), I::set1(rule.scale));
    if (rule.softcap > 0) {
      logit = I::mul(tanh<I>(I::mul(logit, I::set1(1.0f / rule.softcap))), I::set1(rule.softcap));
    }
    if (rule.slope == 0) return logit;
    const auto away = I::add(I::load(kIota), I::set1(static_cast<float>(distance + i)));
    return I::fma(away, I::set1(rule.slope), logit);
  };
  auto most = I::set1(-__builtin_inff()), least = I::set1(__builtin_inff());
  int64_t i = 0;
  for (; i + I::kWidth <= count; i += I::kWidth) {
    const auto logit = logit_at(i, count - i);
    I::store(scores + i, logit);
    most = I::max(most, logit);
    least = I::min(least, logit);
  }
  LogitRange range{I::reduce_max(most), -I::reduce_max(I::sub(I::set1(0.0f), least))};
  if (i < count) store_floats<I>(scores + i, logit_at(i, count - i), count - i);
  for (; i < count; ++i) {
    range.largest = scores[i] > range.largest ? scores[i] : range.largest;
    range.smallest = scores[i] < range.smallest ? scores[i] : range.smallest;
  }
  return range;
}

template <class I>
SoftmaxPart softmax(float* scores, int64_t count, const ScoreRule& rule, int64_t distance) {
  const LogitRange range = make_logits<I>(scores, count, rule, distance);
  const auto weigh = [=](auto exp_of) __attribute__((always_inline)) {
    return sum_row<I>(count, [=](int64_t i, int64_t left) {
      const auto weight = exp_of(I::sub(load_floats<I>(scores + i, left), I::set1(range.largest)));
      store_floats<I>(scores + i, weight, left);
      return first_lanes<I>(weight, left);
    });
  };
  if constexpr (has_narrow_exp<I>()) {
    if (range.largest - range.smallest <= kNarrowExp)
      return {range.largest, weigh([](auto x) { return narrow_exp<I>(x); })};
  }
  return {range.largest, weigh([](auto x) { return exp<I>(x); })};
}

// As many keys from `key` on as a vector has lanes, which are their weights.
template <class I, class T, int N, int V>
[[gnu::always_inline]] inline void add_rows(typename I::F (&sums)[N][V], const float* const (&weights)[N],
                                            const KvRows& values, int64_t key, int64_t at) {
  typename I::F weight[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    weight[n] = I::load(weights[n] + key);
    if (values.scales != nullptr) weight[n] = I::mul(weight[n], I::load(values.scales + key));
  }
  const auto add_key = [&]<int L>() __attribute__((always_inline)) {
    const uint8_t* row = values.rows[key + L] + at * T::kBytes;
    if (key + L + kRowsAhead < values.count)
      __builtin_prefetch(values.rows[key + L + kRowsAhead] + at * T::kBytes);
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const auto value = T::load(row + v * I::kWidth * T::kBytes);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[n][v] = I::template fma_lane<L>(value, weight[n], sums[n][v]);
    }
  };
  [&]<int... L>(std::integer_sequence<int, L...>) __attribute__((always_inline)) {
    (add_key.template operator()<L>(), ...);
  }
  (std::make_integer_sequence<int, I::kWidth>());
}

// N queries by V vectors of the value from column `at` on: one load of the value serves all queries. V > 1: all vectors
// are whole.
template <class I, class T, int N, int V>
void value_tile(const WeightedSum& sum, int64_t query, int64_t at) {
  const KvRows& values = sum.values;
  const int64_t left = values.width - at;
  const float* weights[N];
  typename I::F sums[N][V];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    weights[n] = sum.weights + (query + n) * sum.weight_stride;
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sums[n][v] = I::set1(0.0f);
  }
  int64_t key = 0;
  if constexpr (has_lanes<I>() && V > 1) {
    for (; key + I::kWidth <= values.count; key += I::kWidth)
      add_rows<I, T, N, V>(sums, weights, values, key, at);
  }
  for (; key < values.count; ++key) {
    if (key + kRowsAhead < values.count) __builtin_prefetch(values.rows[key + kRowsAhead] + at * T::kBytes);
    const float scale = values.scales == nullptr ? 1.0f : values.scales[key];
    typename I::F weight[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) weight[n] = I::set1(weights[n][key] * scale);
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const int64_t column = at + v * I::kWidth;
      const auto value = V > 1 ? T::load(values.rows[key] + column * T::kBytes)
                               : load_columns<I, T>(values.rows[key], column, left);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[n][v] = I::fma(weight[n], value, sums[n][v]);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const int64_t column = at + v * I::kWidth;
      store_floats<I>(sum.out + (query + n) * values.width + column, sums[n][v], values.width - column);
    }
  }
}

// Values of a few keys as floats, rows of four vectors.
struct FloatValues {
  const float* floats;
  int64_t at, columns;  // of the value
  int64_t key, count;
};

// As many keys from `key` on as a vector has lanes, which are their weights.
template <class I, int N, int V>
[[gnu::always_inline]] inline void add_values(typename I::F (&sums)[N][V], const float* const (&weights)[N],
                                              const float* scales, const float* floats, int64_t key) {
  typename I::F weight[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    weight[n] = I::load(weights[n] + key);
    if (scales != nullptr) weight[n] = I::mul(weight[n], I::load(scales + key));
  }
  const auto add_key = [&]<int L>() __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const auto value = I::load(floats + ((key + L) * V + v) * I::kWidth);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[n][v] = I::template fma_lane<L>(value, weight[n], sums[n][v]);
    }
  };
  [&]<int... L>(std::integer_sequence<int, L...>) __attribute__((always_inline)) {
    (add_key.template operator()<L>(), ...);
  }
  (std::make_integer_sequence<int, I::kWidth>());
}

template <class I, int N>
void float_tile(const WeightedSum& sum, int64_t query, const FloatValues& values) {
  constexpr int V = 4;
  const float* weights[N];
  typename I::F sums[N][V];
  float* out = sum.out + query * sum.values.width + values.at;
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    weights[n] = sum.weights + (query + n) * sum.weight_stride + values.key;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const int64_t left = values.columns - v * I::kWidth;
      sums[n][v] = values.key == 0 || left <= 0
                       ? I::set1(0.0f)
                       : load_floats<I>(out + n * sum.values.width + v * I::kWidth, left);
    }
  }
  const float* scales = sum.values.scales == nullptr ? nullptr : sum.values.scales + values.key;
  int64_t i = 0;
  if constexpr (has_lanes<I>()) {
    for (; i + I::kWidth <= values.count; i += I::kWidth)
      add_values<I, N, V>(sums, weights, scales, values.floats, i);
  }
  for (; i < values.count; ++i) {
    typename I::F value[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) value[v] = I::load(values.floats + (i * V + v) * I::kWidth);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const auto weight = I::set1(scales == nullptr ? weights[n][i] : weights[n][i] * scales[i]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[n][v] = I::fma(weight, value[v], sums[n][v]);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const int64_t left = values.columns - v * I::kWidth;
      if (left > 0) store_floats<I>(out + n * sum.values.width + v * I::kWidth, sums[n][v], left);
    }
  }
}

// More queries than a tile: values become floats once, a block of keys at a time, and all tiles read those. Sums lie in `out`
// between; the order of additions is that of value_tile.
template <class I, class T>
void weighted_sum_of_many(const WeightedSum& sum) {
  constexpr int64_t kKeys = has_lanes<I>() ? 128 : 32, kColumns = 4 * I::kWidth;
  alignas(64) float floats[kKeys * kColumns];
  const KvRows& values = sum.values;
  for (int64_t at = 0; at < values.width; at += kColumns) {
    const int64_t columns = values.width - at < kColumns ? values.width - at : kColumns;
    for (int64_t key = 0; key < values.count; key += kKeys) {
      const int64_t count = values.count - key < kKeys ? values.count - key : kKeys;
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t c = 0; c < columns; c += I::kWidth)
          I::store(floats + i * kColumns + c, load_columns<I, T>(values.rows[key + i], at + c, columns - c));
      }
      for_tiles<has_lanes<I>() ? 4 : 6>(0, sum.queries, [&]<int N>(int64_t query) {
        float_tile<I, N>(sum, query, {floats, at, columns, key, count});
      });
    }
  }
}

template <class I, class T>
void weighted_sum_as(const WeightedSum& sum) {
  constexpr bool kMany = I::kWidth >= 16 || has_lanes<I>();
  if (kMany && sum.queries > 2 * I::kTokenTile) return weighted_sum_of_many<I, T>(sum);
  for_tiles<I::kTokenTile>(0, sum.queries, [&]<int N>(int64_t query) {
    // Few queries leave registers for longer rows. A level's token tile tells how many registers it has.
    constexpr int kVectors = N * 8 <= 6 * I::kTokenTile ? 8 : 4;
    int64_t at = 0;
    for (; at + kVectors * I::kWidth <= sum.values.width; at += kVectors * I::kWidth) {
      value_tile<I, T, N, kVectors>(sum, query, at);
    }
    for (; at + 4 * I::kWidth <= sum.values.width; at += 4 * I::kWidth)
      value_tile<I, T, N, 4>(sum, query, at);
    for (; at < sum.values.width; at += I::kWidth) value_tile<I, T, N, 1>(sum, query, at);
  });
}

template <class I>
void weighted_sum(const WeightedSum& sum) {
  switch (sum.values.type) {
    case DType::F32:
      return weighted_sum_as<I, PlainF32<I>>(sum);
    case DType::F16:
      return weighted_sum_as<I, PlainF16<I>>(sum);
    case DType::BF16:
      return weighted_sum_as<I, PlainBf16<I>>(sum);
    case DType::I8:
      if constexpr (requires { I::byte_weighted_sum(sum); }) {
        if (sum.values.count <= I::kMostByteRows) return I::byte_weighted_sum(sum);
      }
      return weighted_sum_as<I, PlainI8<I>>(sum);
    default:
      __builtin_trap();  // the back-end checks the type
  }
}

template <class I>
void blend(float* sum, float a, const float* part, float b, int64_t width) {
  map_row<I>(sum, width, [=](int64_t i, int64_t left) {
    const auto kept = I::mul(load_floats<I>(sum + i, left), I::set1(a));
    return I::fma(load_floats<I>(part + i, left), I::set1(b), kept);
  });
}

template <class I>
void store_kv(void* out, DType type, const float* x, int64_t width) {
  auto* to = static_cast<uint8_t*>(out);
  if (type == DType::F32) {
    __builtin_memcpy(to, x, static_cast<size_t>(width) * 4);
    return;
  }
  if (type == DType::F16) {
    for (int64_t i = 0; i < width; i += I::kWidth) {
      uint8_t halves[2 * I::kWidth];
      I::store_f16(halves, load_floats<I>(x + i, width - i));
      const int64_t count = width - i < I::kWidth ? width - i : I::kWidth;
      __builtin_memcpy(to + 2 * i, halves, static_cast<size_t>(2 * count));
    }
    return;
  }
  for (int64_t i = 0; i < width; ++i) {  // BF16
    const uint16_t half = to_bf16(x[i]);
    __builtin_memcpy(to + 2 * i, &half, 2);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
