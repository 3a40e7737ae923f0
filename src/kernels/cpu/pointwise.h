// Norms, activations, rotation and the other operations on one row at a time. Included by the level files
// only. exp and tanh are polynomials within 2 units in the last place, the same in every function of a level.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

// The sum of exp's series for x = n ln 2 + r, that is exp(r).
template <class I>
typename I::F exp_of_rest(typename I::F x, typename I::F n) {
  using F = typename I::F;
  // ln 2 in two parts, the first exact times n
  F r = I::fma(n, I::set1(-0.693359375f), x);
  r = I::fma(n, I::set1(2.12194440e-4f), r);
  constexpr float kTerms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                              5.0000001201e-1f};
  F p = I::set1(1.9875691500e-4f);
  for (const float term : kTerms) p = I::fma(p, r, I::set1(term));
  return I::add(I::fma(p, I::mul(r, r), r), I::set1(1.0f));
}

// Arguments of at most this magnitude give no subnormals, so that 2^n is a sum of exponents.
constexpr float kNarrowExp = 87.0f;

template <class I>
constexpr bool has_narrow_exp() {
  return requires(typename I::F x) {
    I::times_pow2(x, x);
  };
}

// The bits of exp() for such arguments. Adding 1.5 * 2^23 rounds n, whose bits are then the lowest.
template <class I>
typename I::F narrow_exp(typename I::F x) {
  const auto shifted = I::add(I::mul(x, I::set1(1.44269504088896341f)), I::set1(12582912.0f));
  return I::times_pow2(exp_of_rest<I>(x, I::sub(shifted, I::set1(12582912.0f))), shifted);
}

template <class I>
typename I::F exp(typename I::F x) {
  using F = typename I::F;
  if constexpr (has_narrow_exp<I>()) {
    if (I::all_within(x, kNarrowExp)) return narrow_exp<I>(x);
  }
  x = I::max(I::min(x, I::set1(89.0f)), I::set1(-104.0f));
  const F n = I::round(I::mul(x, I::set1(1.44269504088896341f)));
  const F p = exp_of_rest<I>(x, n);
  const F half = I::round(I::mul(n, I::set1(0.5f)));  // 2^n in two steps reaches subnormals and infinity
  return I::mul(I::mul(p, I::pow2(half)), I::pow2(I::sub(n, half)));
}

// x / (1 + e) for e >= 0, within 2 units in the last place where the level has a faster way than a division.
template <class I>
typename I::F over_one_plus(typename I::F x, typename I::F e) {
  const auto below = I::add(I::set1(1.0f), e);
  if constexpr (requires { I::reciprocal(below); }) {
    return I::mul(x, I::reciprocal(below));
  } else {
    return I::div(x, below);
  }
}

template <class I>
typename I::F sigmoid(typename I::F x) {
  return over_one_plus<I>(I::set1(1.0f), exp<I>(I::sub(I::set1(0.0f), x)));
}

template <class I>
typename I::F tanh(typename I::F x) {
  using F = typename I::F;
  const F one = I::set1(1.0f);
  const F large = I::sub(one, I::div(I::set1(2.0f), I::add(exp<I>(I::add(x, x)), one)));
  const F z = I::mul(x, x);
  constexpr float kTerms[] = {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
  F p = I::set1(-5.70498872745e-3f);
  for (const float term : kTerms) p = I::fma(p, z, I::set1(term));
  const F small = I::fma(I::mul(p, z), x, x);
  return I::select(I::less(z, I::set1(0.625f * 0.625f)), small, large);
}

template <class I>
typename I::F load_floats(const float* from, int64_t count) {
  if (count >= I::kWidth) return I::load(from);
  return load_some<I, PlainF32<I>>(reinterpret_cast<const uint8_t*>(from), count);
}

template <class I>
void store_floats(float* to, typename I::F value, int64_t count) {
  if (count >= I::kWidth) return I::store(to, value);
  float lanes[I::kWidth];
  I::store(lanes, value);
  __builtin_memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

// Zero in all lanes from `count` on.
template <class I>
typename I::F first_lanes(typename I::F value, int64_t count) {
  if (count >= I::kWidth) return value;
  float lanes[I::kWidth];
  I::store(lanes, value);
  return load_floats<I>(lanes, count);
}

// out[i] = f(i, lanes left) for vectors starting at i
template <class I, class Function>
void map_row(float* out, int64_t width, Function function) {
  for (int64_t i = 0; i < width; i += I::kWidth) store_floats<I>(out + i, function(i, width - i), width - i);
}

// Sum of f over the row in two interleaved vectors. f must give zero for zero-filled lanes.
template <class I, class Function>
float sum_row(int64_t width, Function function) {
  auto even = I::set1(0.0f);
  auto odd = I::set1(0.0f);
  int64_t i = 0;
  for (; i + 2 * I::kWidth <= width; i += 2 * I::kWidth) {
    even = I::add(even, function(i, width - i));
    odd = I::add(odd, function(i + I::kWidth, width - i - I::kWidth));
  }
  for (; i < width; i += I::kWidth) even = I::add(even, function(i, width - i));
  return I::reduce_add(I::add(even, odd));
}

template <class I>
void rms_norm(float* out, const float* x, const float* gain, int64_t width, float eps) {
  const float squares = sum_row<I>(width, [=](int64_t i, int64_t left) {
    const auto value = load_floats<I>(x + i, left);
    return I::mul(value, value);
  });
  const auto factor = I::set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + eps));
  map_row<I>(out, width, [=](int64_t i, int64_t left) {
    const auto value = I::mul(load_floats<I>(x + i, left), factor);
    return gain == nullptr ? value : I::mul(value, load_floats<I>(gain + i, left));
  });
}

template <class I>
void layer_norm(float* out, const float* x, const float* gain, const float* bias, int64_t width, float eps) {
  const auto count = static_cast<float>(width);
  const float sum = sum_row<I>(width, [=](int64_t i, int64_t left) { return load_floats<I>(x + i, left); });
  const float mean = sum / count;
  const auto means = I::set1(mean);
  const float squares = sum_row<I>(width, [=](int64_t i, int64_t left) {
    const auto value = first_lanes<I>(I::sub(load_floats<I>(x + i, left), means), left);
    return I::mul(value, value);
  });
  const auto factor = I::set1(1.0f / __builtin_sqrtf(squares / count + eps));
  map_row<I>(out, width, [=](int64_t i, int64_t left) {
    auto value = I::mul(I::sub(load_floats<I>(x + i, left), means), factor);
    if (gain != nullptr) value = I::mul(value, load_floats<I>(gain + i, left));
    return bias == nullptr ? value : I::add(value, load_floats<I>(bias + i, left));
  });
}

template <class I>
void add_scaled(float* out, const float* a, const float* b, float b_scale, int64_t width) {
  const auto factor = I::set1(b_scale);
  map_row<I>(out, width, [=](int64_t i, int64_t left) {
    return I::fma(load_floats<I>(b + i, left), factor, load_floats<I>(a + i, left));
  });
}

template <class I>
void multiply(float* x, float factor, int64_t width) {
  map_row<I>(x, width,
             [=](int64_t i, int64_t left) { return I::mul(load_floats<I>(x + i, left), I::set1(factor)); });
}

template <class I>
void softcap(float* x, float cap, int64_t width) {
  const auto inverse = I::set1(1.0f / cap);
  map_row<I>(x, width, [=](int64_t i, int64_t left) {
    return I::mul(tanh<I>(I::mul(load_floats<I>(x + i, left), inverse)), I::set1(cap));
  });
}

template <class I>
void clamp(float* x, float limit, int64_t width) {
  map_row<I>(x, width, [=](int64_t i, int64_t left) {
    return I::max(I::min(load_floats<I>(x + i, left), I::set1(limit)), I::set1(-limit));
  });
}

// -- activations

template <class I>
struct Silu {
  static typename I::F of(typename I::F x) { return over_one_plus<I>(x, exp<I>(I::sub(I::set1(0.0f), x))); }
};

template <class I>
struct Gelu {
  static typename I::F of(typename I::F x) {
    float lanes[I::kWidth];
    I::store(lanes, x);
    for (float& lane : lanes) lane = 0.5f * lane * __builtin_erfcf(-0.70710678118654752f * lane);
    return I::load(lanes);
  }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2 u)
template <class I>
struct GeluTanh {
  static typename I::F of(typename I::F x) {
    const auto cube = I::mul(I::mul(x, x), I::mul(x, I::set1(0.044715f)));
    return I::mul(x, sigmoid<I>(I::mul(I::add(x, cube), I::set1(2 * 0.79788456080286536f))));
  }
};

template <class I>
struct Relu {
  static typename I::F of(typename I::F x) { return I::max(x, I::set1(0.0f)); }
};

template <class I>
struct Relu2 {
  static typename I::F of(typename I::F x) {
    const auto positive = I::max(x, I::set1(0.0f));
    return I::mul(positive, positive);
  }
};

template <class I>
struct Elu {
  static typename I::F of(typename I::F x) {
    const auto zero = I::set1(0.0f);
    return I::add(I::max(x, zero), I::sub(exp<I>(I::min(x, zero)), I::set1(1.0f)));
  }
};

template <class I>
struct Sigmoid {
  static typename I::F of(typename I::F x) { return sigmoid<I>(x); }
};

template <class I>
struct Softplus {
  static typename I::F of(typename I::F x) {
    float lanes[I::kWidth];
    I::store(lanes, x);
    for (float& lane : lanes)
      lane = (lane > 0.0f ? lane : 0.0f) + __builtin_log1pf(__builtin_expf(-__builtin_fabsf(lane)));
    return I::load(lanes);
  }
};

template <class I>
struct Identity {
  static typename I::F of(typename I::F x) { return x; }
};

template <class I, class A>
void activate_row(float* out, const float* x, int64_t width) {
  map_row<I>(out, width, [=](int64_t i, int64_t left) { return A::of(load_floats<I>(x + i, left)); });
}

template <class I, class A>
void gate_row(float* out, const float* gate, const float* up, int64_t width) {
  map_row<I>(out, width, [=](int64_t i, int64_t left) {
    return I::mul(A::of(load_floats<I>(gate + i, left)), load_floats<I>(up + i, left));
  });
}

template <class I>
void gate_row_oai(float* out, const float* gate, const float* up, int64_t width) {
  const auto limit = I::set1(7.0f);
  map_row<I>(out, width, [=](int64_t i, int64_t left) {
    const auto g = I::min(load_floats<I>(gate + i, left), limit);
    const auto u = I::max(I::min(load_floats<I>(up + i, left), limit), I::set1(-7.0f));
    return I::mul(I::mul(g, sigmoid<I>(I::mul(g, I::set1(1.702f)))), I::add(u, I::set1(1.0f)));
  });
}

template <class I>
void activate(float* out, const float* x, int64_t width, Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return activate_row<I, Silu<I>>(out, x, width);
    case Activation::Gelu:
      return activate_row<I, Gelu<I>>(out, x, width);
    case Activation::GeluTanh:
      return activate_row<I, GeluTanh<I>>(out, x, width);
    case Activation::Relu:
      return activate_row<I, Relu<I>>(out, x, width);
    case Activation::Relu2:
      return activate_row<I, Relu2<I>>(out, x, width);
    case Activation::Elu:
      return activate_row<I, Elu<I>>(out, x, width);
    case Activation::Sigmoid:
      return activate_row<I, Sigmoid<I>>(out, x, width);
    case Activation::Softplus:
      return activate_row<I, Softplus<I>>(out, x, width);
    case Activation::Identity:
      return activate_row<I, Identity<I>>(out, x, width);
    case Activation::SwigluOai:
      break;
  }
  __builtin_trap();  // the back-end refuses it without a gate
}

template <class I>
void gate(float* out, const float* gate, const float* up, int64_t width, Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return gate_row<I, Silu<I>>(out, gate, up, width);
    case Activation::Gelu:
      return gate_row<I, Gelu<I>>(out, gate, up, width);
    case Activation::GeluTanh:
      return gate_row<I, GeluTanh<I>>(out, gate, up, width);
    case Activation::Relu:
      return gate_row<I, Relu<I>>(out, gate, up, width);
    case Activation::Relu2:
      return gate_row<I, Relu2<I>>(out, gate, up, width);
    case Activation::Elu:
      return gate_row<I, Elu<I>>(out, gate, up, width);
    case Activation::Sigmoid:
      return gate_row<I, Sigmoid<I>>(out, gate, up, width);
    case Activation::Softplus:
      return gate_row<I, Softplus<I>>(out, gate, up, width);
    case Activation::Identity:
      return gate_row<I, Identity<I>>(out, gate, up, width);
    case Activation::SwigluOai:
      return gate_row_oai<I>(out, gate, up, width);
  }
}

// Plain code: the compiler's own vectors do well enough on so few elements.
template <class I>
void rope(float* head, const float* angles, int64_t pairs, RopeStyle style) {
  const int64_t step = style == RopeStyle::NeoX ? 1 : 2;
  const int64_t partner = style == RopeStyle::NeoX ? pairs : 1;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    float* first = head + pair * step;
    float* second = first + partner;
    const float cosine = angles[2 * pair];
    const float sine = angles[2 * pair + 1];
    const float a = *first;
    const float b = *second;
    *first = a * cosine - b * sine;
    *second = b * cosine + a * sine;
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
