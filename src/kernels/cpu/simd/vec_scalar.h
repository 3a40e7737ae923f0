// The vector words in portable C++, four wide, so that machines without a level of their own run and the
// shared kernels can be read against plain loops.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd/kernel_table.h"
#include "tensor/half.h"

namespace sluice::kernels::cpu {
namespace {

struct Scalar {
  // -- floats
  struct F {
    float lane[4];
  };
  struct Mask {
    bool lane[4];
  };
  static constexpr int kWidth = 4;
  static constexpr int kRowTile = 2;
  static constexpr int kTokenTile = 2;
  static constexpr bool kSplit = false;  // no products of bf16 with split activations

  template <class Function>
  static F each(Function function) {
    return {function(0), function(1), function(2), function(3)};
  }
  static F set1(float value) { return {value, value, value, value}; }
  static F load(const float* from) {
    return each([=](int i) { return from[i]; });
  }
  static void store(float* to, F value) { std::memcpy(to, value.lane, sizeof value); }
  static F add(F a, F b) {
    return each([=](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(F a, F b) {
    return each([=](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F mul(F a, F b) {
    return each([=](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F div(F a, F b) {
    return each([=](int i) { return a.lane[i] / b.lane[i]; });
  }
  static F fma(F a, F b, F c) {
    return each([=](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F min(F a, F b) {
    return each([=](int i) { return b.lane[i] < a.lane[i] ? b.lane[i] : a.lane[i]; });
  }
  static F max(F a, F b) {
    return each([=](int i) { return b.lane[i] > a.lane[i] ? b.lane[i] : a.lane[i]; });
  }
  static F round(F a) {
    return each([=](int i) { return std::nearbyint(a.lane[i]); });
  }
  static Mask less(F a, F b) {
    Mask mask;
    for (int i = 0; i < 4; ++i) mask.lane[i] = a.lane[i] < b.lane[i];
    return mask;
  }
  static F select(Mask mask, F yes, F no) {
    return each([=](int i) { return mask.lane[i] ? yes.lane[i] : no.lane[i]; });
  }
  static F pow2(F n) {
    return each(
        [=](int i) { return std::ldexp(1.0f, n.lane[i] > -200 ? static_cast<int>(n.lane[i]) : -200); });
  }
  static float reduce_add(F a) { return (a.lane[0] + a.lane[1]) + (a.lane[2] + a.lane[3]); }
  static float reduce_max(F a) {
    const float first = a.lane[0] > a.lane[1] ? a.lane[0] : a.lane[1];
    const float second = a.lane[2] > a.lane[3] ? a.lane[2] : a.lane[3];
    return first > second ? first : second;
  }

  static uint16_t load16(const uint8_t* from) { return static_cast<uint16_t>(from[0] | (from[1] << 8)); }
  static F load_f32(const uint8_t* from) {
    F value;
    std::memcpy(value.lane, from, sizeof value);
    return value;
  }
  static F load_f16(const uint8_t* from) {
    return each([=](int i) { return f16_to_f32(load16(from + 2 * i)); });
  }
  static F load_bf16(const uint8_t* from) {
    return each([=](int i) { return bf16_to_f32(load16(from + 2 * i)); });
  }
  static F load_f8(const uint8_t* from) {
    return each([=](int i) { return e4m3_to_f32(from[i]); });
  }
  static F load_i8(const uint8_t* from) {
    return each([=](int i) { return static_cast<float>(static_cast<int8_t>(from[i])); });
  }
  static void store_f16(uint8_t* to, F value) {
    for (int i = 0; i < 4; ++i) {
      const uint16_t half = f32_to_f16(value.lane[i]);
      std::memcpy(to + 2 * i, &half, 2);
    }
  }

  // -- four rows
  using F4 = F;
  struct I4 {
    int32_t lane[4];
  };
  static F4 splat4(float value) { return set1(value); }
  static F4 load4(const float* from) { return load(from); }
  static void store4(float* to, F4 value) { store(to, value); }
  static F4 add4(F4 a, F4 b) { return add(a, b); }
  static F4 mul4(F4 a, F4 b) { return mul(a, b); }
  static F4 fma4(F4 a, F4 b, F4 c) { return fma(a, b, c); }
  static F4 to_float4(I4 a) {
    return each([=](int i) { return static_cast<float>(a.lane[i]); });
  }
  static I4 set4(int32_t a, int32_t b, int32_t c, int32_t d) { return {a, b, c, d}; }
  static F4 halves4(uint64_t bits) {
    return each([=](int i) { return f16_to_f32(static_cast<uint16_t>(bits >> (16 * i))); });
  }

  // -- bytes
  struct B16 {
    uint8_t byte[16];
  };
  template <class Function>
  static B16 each_byte(Function function) {
    B16 result;
    for (int i = 0; i < 16; ++i) result.byte[i] = static_cast<uint8_t>(function(i));
    return result;
  }
  static B16 bytes(uint8_t value) {
    return each_byte([=](int) { return value; });
  }
  static B16 load_bytes(const uint8_t* from) {
    return each_byte([=](int i) { return from[i]; });
  }
  static B16 bit_and(B16 a, B16 b) {
    return each_byte([&](int i) { return a.byte[i] & b.byte[i]; });
  }
  static B16 bit_or(B16 a, B16 b) {
    return each_byte([&](int i) { return a.byte[i] | b.byte[i]; });
  }
  static B16 subtract(B16 a, B16 b) {
    return each_byte([&](int i) { return a.byte[i] - b.byte[i]; });
  }
  static B16 equal(B16 a, B16 b) {
    return each_byte([&](int i) { return a.byte[i] == b.byte[i] ? 0xff : 0; });
  }
  static B16 lookup(B16 table, B16 index) {
    return each_byte([&](int i) { return table.byte[index.byte[i]]; });
  }
  static B16 shift_right(B16 a, int count) {
    return each_byte([&](int i) { return a.byte[i] >> count; });
  }
  static B16 shift_left(B16 a, int count) {
    return each_byte([&](int i) { return a.byte[i] << count; });
  }
  static B16 spread(uint16_t two) {
    return each_byte([=](int i) { return two >> (i / 8 * 8); });
  }

  struct I8x32 {
    int8_t byte[32];
  };
  static I8x32 join(B16 low, B16 high) {
    I8x32 result;
    std::memcpy(result.byte, low.byte, 16);
    std::memcpy(result.byte + 16, high.byte, 16);
    return result;
  }

  // -- products of bytes
  static int32_t dot16(const int8_t* a, const int8_t* b) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += a[i] * b[i];
    return sum;
  }
  template <int N>
  static void dots(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    scaled_dots<N>(weights, {{1, 1, 1, 1}, {1, 1, 1, 1}}, x, sums);
  }
  template <int N>
  static void scaled_dots(const I8x32 (&weights)[4], const HalfScales& scales,
                          const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    for (int n = 0; n < N; ++n) {
      for (int r = 0; r < 4; ++r) {
        sums[n].lane[r] = scales.low[r] * dot16(weights[r].byte, x[n]->quants) +
                          scales.high[r] * dot16(weights[r].byte + 16, x[n]->quants + 16);
      }
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
