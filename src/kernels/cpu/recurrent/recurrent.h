// Kernels of layers that keep a state: convolutions, the delta rule and state-space scans. Included by the level files only.
//
// Tokens run one after the other, so that a token's bits do not depend on where a step began. Of the delta rule's state
// [key_dim, value_dim] a tile of columns is read and written once per token, and goes through
// many tokens before the next (a token alone reads it once more); its sums run down the columns, one vector of lanes each. A scan's state [head_dim, state_dim] is read and written once per token; its sums run
// along the rows.
#pragma once

#include <cstdint>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/recurrent/kernels.h"

namespace sluice::kernels::cpu {
namespace {

template <class I>
void hadamard(float* out, const float* a, const float* b, int64_t width) {
  map_row<I>(out, width, [=](int64_t i, int64_t left) {
    return I::mul(load_floats<I>(a + i, left), load_floats<I>(b + i, left));
  });
}

// Channels [begin, end).
template <class I>
void convolve(float* out, const float* const* rows, const CausalConv& conv, int64_t begin, int64_t end) {
  const auto* bias = static_cast<const float*>(conv.bias.data);
  const auto* kernel = static_cast<const float*>(conv.kernel.data);
  const int64_t taps = conv.kernel.shape[0], channels = conv.kernel.shape[1];
  map_row<I>(out + begin, end - begin, [=, &conv](int64_t i, int64_t left) {
    auto sum = bias == nullptr ? I::set1(0.0f) : load_floats<I>(bias + begin + i, left);
    for (int64_t tap = 0; tap < taps; ++tap)
      if (rows[tap] != nullptr)
        sum = I::fma(load_floats<I>(kernel + tap * channels + begin + i, left),
                     load_floats<I>(rows[tap] + begin + i, left), sum);
    return conv.silu ? Silu<I>::of(sum) : sum;
  });
}

inline float softplus(float x) {
  return x > 20.0f ? x : __builtin_log1pf(__builtin_expf(x));
}

// Tokens whose keys, queries and factors are made before columns go through them: at most, and as many as fit so many numbers.
constexpr int64_t kDeltaTokens = 64;
constexpr int64_t kDeltaNumbers = 64 * 128;
static_assert(kDeltaNumbers >= DeltaRule::kMaxDim);

// Of each token what all columns read: [tokens, key_dim].
struct DeltaRows {
  float q[kDeltaNumbers];
  float k[kDeltaNumbers];
  float decay[kDeltaNumbers];      // where channels have their own
  float decayed_k[kDeltaNumbers];  // decay * k
  float head_decay[kDeltaTokens];  // where a head has one
  float beta[kDeltaTokens];
};

// Columns [j, j + N vectors) of the state, which lie at `state`; `left` counts those that there are, where N is 1. D: a decay for
// each channel.
template <class I, int N, bool D>
struct DeltaTile {
  using F = typename I::F;
  static constexpr int64_t kColumns = int64_t{N} * I::kWidth;
  const DeltaRun& run;
  const DeltaRows& rows;
  int64_t j, left;
  float* state;    // [key_dim] rows of these columns,
  int64_t stride;  // so far apart

  F load(const float* from, int n) const {
    return N > 1 ? I::load(from + n * I::kWidth) : load_floats<I>(from, left);
  }
  void store(float* to, int n, F value) const {
    N > 1 ? I::store(to + n * I::kWidth, value) : store_floats<I>(to, value, left);
  }

  // What the state holds for the decayed key of token `index`.
  [[gnu::always_inline]] void look_up(F (&found)[N], int64_t index) const {
    const float* keys = rows.decayed_k + index * run.key_dim;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) found[n] = I::set1(0.0f);
    for (int64_t i = 0; i < run.key_dim; ++i) {
      const F key = I::set1(keys[i]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) found[n] = I::fma(load(state + i * stride, n), key, found[n]);
    }
  }

  // Brings the state over token `index`, which is `token` of the run, and gives its result. `found` is what the state held for
  // its key, and then, where another token follows, what the state holds for that one's: it need not be read again.
  template <bool Follows>
  [[gnu::always_inline]] void advance(F (&found)[N], int64_t token, int64_t index) const {
    const int64_t at = index * run.key_dim;
    F deltas[N], sums[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      deltas[n] =
          I::mul(I::sub(load(run.v + token * run.qkv_stride + j, n), found[n]), I::set1(rows.beta[index]));
      sums[n] = found[n] = I::set1(0.0f);
    }
    F decay = I::set1(rows.head_decay[index]);
    for (int64_t i = 0; i < run.key_dim; ++i) {
      float* row = state + i * stride;
      if constexpr (D) decay = I::set1(rows.decay[at + i]);
      const F key = I::set1(rows.k[at + i]), query = I::set1(rows.q[at + i]);
      const F next = I::set1(rows.decayed_k[at + (Follows ? run.key_dim : 0) + i]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const F value = I::fma(key, deltas[n], I::mul(load(row, n), decay));
        store(row, n, value);
        sums[n] = I::fma(value, query, sums[n]);
        if constexpr (Follows) found[n] = I::fma(value, next, found[n]);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(run.out + token * run.out_stride + j, n, sums[n]);
  }

  // Tokens [first, first + count) of the run, which are the rows' from 0 on.
  void go(int64_t first, int64_t count) const {
    F found[N];
    look_up(found, 0);
    for (int64_t index = 0; index + 1 < count; ++index) advance<true>(found, first + index, index);
    advance<false>(found, first + count - 1, count - 1);
  }
};

// out = x / length * factor
template <class I>
void normalize_length(float* out, const float* x, int64_t width, float eps, float factor) {
  const float squares = sum_row<I>(width, [=](int64_t i, int64_t left) {
    const auto value = load_floats<I>(x + i, left);
    return I::mul(value, value);
  });
  const auto scale = I::set1(factor / __builtin_sqrtf(squares + eps));
  map_row<I>(out, width, [=](int64_t i, int64_t left) { return I::mul(load_floats<I>(x + i, left), scale); });
}

// What columns read of tokens [first, first + count).
template <class I>
void make_delta_rows(DeltaRows& rows, const DeltaRun& run, int64_t first, int64_t count) {
  const float factor = 1.0f / __builtin_sqrtf(static_cast<float>(run.key_dim));
  for (int64_t index = 0; index < count; ++index) {
    const int64_t token = first + index, at = index * run.key_dim;
    normalize_length<I>(rows.q + at, run.q + token * run.qkv_stride, run.key_dim, run.length_eps, factor);
    normalize_length<I>(rows.k + at, run.k + token * run.qkv_stride, run.key_dim, run.length_eps, 1.0f);
    const float* gates = run.decay + token * run.decay_stride;
    const auto decay_of = [&](int64_t i) {
      return __builtin_expf(run.rate * softplus(gates[i] + run.decay_bias[i]));
    };
    if (run.channel_decay) {
      for (int64_t i = 0; i < run.key_dim; ++i) rows.decay[at + i] = decay_of(i);
      hadamard<I>(rows.decayed_k + at, rows.decay + at, rows.k + at, run.key_dim);
    }
    const float decay = run.channel_decay ? 0.0f : decay_of(0);
    if (!run.channel_decay)
      map_row<I>(rows.decayed_k + at, run.key_dim, [&](int64_t i, int64_t left) {
        return I::mul(I::set1(decay), load_floats<I>(rows.k + at + i, left));
      });
    rows.head_decay[index] = decay;
    rows.beta[index] = run.beta_scale / (1.0f + __builtin_expf(-run.beta[token * run.beta_stride]));
  }
}

// N vectors of columns at a time by all of the tokens; gives where they end.
template <class I, int N, bool D>
int64_t delta_tiles(const DeltaRun& run, const DeltaRows& rows, int64_t first, int64_t count, int64_t j) {
  constexpr int64_t kColumns = DeltaTile<I, N, D>::kColumns;
  const int64_t end = N == 1 ? run.value_dim : j + (run.value_dim - j) / kColumns * kColumns;
  for (; j < end; j += kColumns)
    DeltaTile<I, N, D>{run, rows, j, run.value_dim - j, run.state + j, run.value_dim}.go(first, count);
  return j;
}

// The same with the columns side by side in the meantime: rows of a state often lie a power of two apart, and a few lines of the
// first cache would take them all.
template <class I, int N, bool D>
int64_t delta_copied_tiles(const DeltaRun& run, const DeltaRows& rows, int64_t first, int64_t count) {
  constexpr int64_t kColumns = DeltaTile<I, N, D>::kColumns;
  alignas(64) float tile[DeltaRule::kMaxDim * kColumns];
  int64_t j = 0;
  for (; j + kColumns <= run.value_dim; j += kColumns) {
    float* const state = run.state + j;
    for (int64_t i = 0; i < run.key_dim; ++i)
      __builtin_memcpy(tile + i * kColumns, state + i * run.value_dim, kColumns * sizeof(float));
    DeltaTile<I, N, D>{run, rows, j, kColumns, tile, kColumns}.go(first, count);
    for (int64_t i = 0; i < run.key_dim; ++i)
      __builtin_memcpy(state + i * run.value_dim, tile + i * kColumns, kColumns * sizeof(float));
  }
  return j;
}

template <class I, bool D>
void delta_tokens(const DeltaRun& run, const DeltaRows& rows, int64_t first, int64_t count) {
  // Many tokens find as many columns as leave their sums in registers in the first cache; one reads memory, in longer pieces.
  constexpr int kOne = 4, kMany = I::kWidth >= 8 ? 2 : 4;
  const int64_t j = count == 1 ? delta_tiles<I, kOne, D>(run, rows, first, count, 0)
                               : delta_copied_tiles<I, kMany, D>(run, rows, first, count);
  delta_tiles<I, 1, D>(run, rows, first, count, j);
}

template <class I>
void delta_run(const DeltaRun& run) {
  DeltaRows rows;
  const int64_t fit = kDeltaNumbers / run.key_dim, most = fit < kDeltaTokens ? fit : kDeltaTokens;
  for (int64_t first = 0; first < run.tokens; first += most) {
    const int64_t count = run.tokens - first < most ? run.tokens - first : most;
    make_delta_rows<I>(rows, run, first, count);
    if (run.channel_decay) {
      delta_tokens<I, true>(run, rows, first, count);
    } else {
      delta_tokens<I, false>(run, rows, first, count);
    }
  }
}

template <class I>
void scan_run(const ScanRun& run) {
  float kept[SelectiveScan::kMaxStateDim];
  for (int64_t token = 0; token < run.tokens; ++token) {
    const float raw = softplus(run.step[token * run.step_stride] + run.step_bias);
    const float step = raw < run.least_step     ? run.least_step
                       : raw > run.largest_step ? run.largest_step
                                                : raw;
    const float *b = run.b + token * run.b_stride, *c = run.c + token * run.c_stride;
    if (run.rate_per_state) {
      map_row<I>(kept, run.state_dim, [&](int64_t i, int64_t left) {
        return exp<I>(I::mul(load_floats<I>(run.rate + i, left), I::set1(step)));
      });
    } else {
      const float all = __builtin_expf(step * run.rate[0]);
      for (int64_t i = 0; i < run.state_dim; ++i) kept[i] = all;
    }
    for (int64_t p = 0; p < run.head_dim; ++p) {
      const float x = run.x[token * run.x_stride + p];
      float* state = run.state + p * run.state_dim;
      const auto scaled = I::set1(step * x);
      const float sum = sum_row<I>(run.state_dim, [&](int64_t i, int64_t left) {
        const auto value = I::fma(load_floats<I>(state + i, left), load_floats<I>(kept + i, left),
                                  I::mul(scaled, load_floats<I>(b + i, left)));
        store_floats<I>(state + i, value, left);
        return I::mul(value, load_floats<I>(c + i, left));
      });
      run.out[token * run.out_stride + p] = sum + run.skip * x;
    }
  }
}

template <class I>
constexpr RecurrentKernels make_recurrent() {
  return {
      .hadamard = hadamard<I>, .convolve = convolve<I>, .delta_run = delta_run<I>, .scan_run = scan_run<I>};
}

}  // namespace
}  // namespace sluice::kernels::cpu
