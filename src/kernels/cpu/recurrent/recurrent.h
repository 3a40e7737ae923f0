// Kernels of layers that keep a state: convolutions, the delta rule and state-space scans. Included by the level files only.
//
// Tokens run one after the other, so that a token's bits do not depend on where a step began. Of the delta rule's state
// [key_dim, value_dim] a tile of columns is read and written once and read once more per token; its sums run down the
// columns, one vector of lanes each. A scan's state [head_dim, state_dim] is read and written once per token; its sums run
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

// One token: q and k are ready, decay has key_dim factors.
struct DeltaStep {
  const float *q, *k, *v, *decay;
  float beta;
  float* out;
};

// Columns [j, j + N vectors) of the state; `left` counts those that there are.
template <class I, int N>
void delta_columns(const DeltaRun& run, const DeltaStep& step, int64_t j, int64_t left) {
  using F = typename I::F;
  const auto load = [&](const float* from, int n) {
    return load_floats<I>(from + n * I::kWidth, left - n * I::kWidth);
  };
  const auto store = [&](float* to, int n, F value) {
    store_floats<I>(to + n * I::kWidth, value, left - n * I::kWidth);
  };
  F sums[N];
  for (int n = 0; n < N; ++n) sums[n] = I::set1(0.0f);
  for (int64_t i = 0; i < run.key_dim; ++i) {
    const float* row = run.state + i * run.value_dim + j;
    const F factor = I::set1(step.decay[i] * step.k[i]);
    for (int n = 0; n < N; ++n) sums[n] = I::fma(load(row, n), factor, sums[n]);
  }
  F deltas[N];
  for (int n = 0; n < N; ++n) {
    deltas[n] = I::mul(I::sub(load(step.v + j, n), sums[n]), I::set1(step.beta));
    sums[n] = I::set1(0.0f);
  }
  for (int64_t i = 0; i < run.key_dim; ++i) {
    float* row = run.state + i * run.value_dim + j;
    const F decay = I::set1(step.decay[i]), key = I::set1(step.k[i]), query = I::set1(step.q[i]);
    for (int n = 0; n < N; ++n) {
      const F value = I::fma(key, deltas[n], I::mul(load(row, n), decay));
      store(row, n, value);
      sums[n] = I::fma(value, query, sums[n]);
    }
  }
  for (int n = 0; n < N; ++n) store(step.out + j, n, sums[n]);
}

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

template <class I>
void delta_run(const DeltaRun& run) {
  float q[DeltaRule::kMaxDim], k[DeltaRule::kMaxDim], decay[DeltaRule::kMaxDim];
  const float factor = 1.0f / __builtin_sqrtf(static_cast<float>(run.key_dim));
  for (int64_t token = 0; token < run.tokens; ++token) {
    normalize_length<I>(q, run.q + token * run.qkv_stride, run.key_dim, run.length_eps, factor);
    normalize_length<I>(k, run.k + token * run.qkv_stride, run.key_dim, run.length_eps, 1.0f);
    const float* gates = run.decay + token * run.decay_stride;
    for (int64_t i = 0; i < run.key_dim; ++i)
      decay[i] = i == 0 || run.channel_decay
                     ? __builtin_expf(run.rate * softplus(gates[i] + run.decay_bias[i]))
                     : decay[0];
    const float beta = run.beta_scale / (1.0f + __builtin_expf(-run.beta[token * run.beta_stride]));
    const DeltaStep step{q, k, run.v + token * run.qkv_stride, decay, beta, run.out + token * run.out_stride};
    int64_t j = 0;
    for (; j + 4 * I::kWidth <= run.value_dim; j += 4 * I::kWidth)
      delta_columns<I, 4>(run, step, j, run.value_dim - j);
    for (; j < run.value_dim; j += I::kWidth) delta_columns<I, 1>(run, step, j, run.value_dim - j);
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
