// The vector words of aarch64: 4 floats (F), 4 integers (I4), 16 bytes (B16), 32 signed bytes (I8x32). Every
// name is private to the file that includes this, because files are compiled for different levels.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

struct Neon {
  // -- floats
  using F = float32x4_t;
  using Mask = uint32x4_t;
  static constexpr int kWidth = 4;
  static constexpr int kRowTile = 4;
  static constexpr int kTokenTile = 4;
  static constexpr bool kSplit = false;  // no products of bf16 with split activations

  static F set1(float value) { return vdupq_n_f32(value); }
  static F load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, F value) { vst1q_f32(to, value); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  // 1 / a for a >= 1: an estimate of eight bits and two steps of Newton's. A division takes as long as ten products.
  static F reciprocal(F a) {
    F x = vrecpeq_f32(a);
    x = vmulq_f32(x, vrecpsq_f32(a, x));
    return vmulq_f32(x, vrecpsq_f32(a, x));
  }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // c + a * b[Lane]
  template <int Lane>
  static F fma_lane(F a, F b, F c) {
    return vfmaq_laneq_f32(c, a, b, Lane);
  }
  // The sum of each vector's lanes, (0 + 1) + (2 + 3).
  static F neighbours_added(const F (&m)[4]) {
    return vpaddq_f32(vpaddq_f32(m[0], m[1]), vpaddq_f32(m[2], m[3]));
  }
  static void transpose(F (&m)[4]) {
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(m[0], m[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(m[0], m[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(m[2], m[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(m[2], m[3]));
    m[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    m[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    m[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    m[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
  }
  static F min(F a, F b) { return vminq_f32(a, b); }
  static F max(F a, F b) { return vmaxq_f32(a, b); }
  static F round(F a) { return vrndnq_f32(a); }
  static Mask less(F a, F b) { return vcltq_f32(a, b); }
  static F select(Mask mask, F yes, F no) { return vbslq_f32(mask, yes, no); }
  // 2^n for whole n in [-126, 127]
  static F pow2(F n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
  }
  // Whether no lane's magnitude is above `limit`; false for NaN.
  static bool all_within(F a, float limit) { return vminvq_u32(vcaleq_f32(a, vdupq_n_f32(limit))) != 0; }
  // p * 2^n for normal results; the lowest bits of `shifted` are n's.
  static F times_pow2(F p, F shifted) {
    const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), exponent));
  }
  static float reduce_add(F a) { return vaddvq_f32(a); }
  static float reduce_max(F a) { return vmaxvq_f32(a); }

  static F load_f32(const uint8_t* from) { return vreinterpretq_f32_u8(vld1q_u8(from)); }
  static F load_f16(const uint8_t* from) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from))); }
  static F load_bf16(const uint8_t* from) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(from)), 16));
  }
  static F load_f8(const uint8_t* from) {
    uint32_t four;
    __builtin_memcpy(&four, from, 4);
    const uint32x4_t bits = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
    const uint32x4_t code = vandq_u32(bits, vdupq_n_u32(0x7f));
    const F magnitude = vmulq_f32(vreinterpretq_f32_u32(vshlq_n_u32(code, 20)), vdupq_n_f32(0x1p120f));
    const uint32x4_t sign = vshlq_n_u32(vandq_u32(bits, vdupq_n_u32(0x80)), 24);
    const F value = vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(magnitude), sign));
    return vbslq_f32(vceqq_u32(code, vdupq_n_u32(0x7f)), vdupq_n_f32(__builtin_nanf("")), value);
  }
  static F load_i8(const uint8_t* from) {
    uint32_t four;
    __builtin_memcpy(&four, from, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))))));
  }
  static void store_f16(uint8_t* to, F value) { vst1_u8(to, vreinterpret_u8_f16(vcvt_f16_f32(value))); }

  // -- four rows
  using F4 = float32x4_t;
  using I4 = int32x4_t;
  static F4 splat4(float value) { return vdupq_n_f32(value); }
  static F4 load4(const float* from) { return vld1q_f32(from); }
  static void store4(float* to, F4 value) { vst1q_f32(to, value); }
  static F4 add4(F4 a, F4 b) { return vaddq_f32(a, b); }
  static F4 mul4(F4 a, F4 b) { return vmulq_f32(a, b); }
  static F4 fma4(F4 a, F4 b, F4 c) { return vfmaq_f32(c, a, b); }
  static F4 to_float4(I4 a) { return vcvtq_f32_s32(a); }
  static I4 set4(int32_t a, int32_t b, int32_t c, int32_t d) { return I4{a, b, c, d}; }
  // Four f16 as bits, the first lowest.
  static F4 halves4(uint64_t bits) { return vcvt_f32_f16(vreinterpret_f16_u64(vdup_n_u64(bits))); }

  // -- bytes
  using B16 = uint8x16_t;
  static B16 bytes(uint8_t value) { return vdupq_n_u8(value); }
  static B16 load_bytes(const uint8_t* from) { return vld1q_u8(from); }
  static B16 bit_and(B16 a, B16 b) { return vandq_u8(a, b); }
  static B16 bit_or(B16 a, B16 b) { return vorrq_u8(a, b); }
  static B16 subtract(B16 a, B16 b) { return vsubq_u8(a, b); }
  static B16 equal(B16 a, B16 b) { return vceqq_u8(a, b); }  // 0xff where equal
  static B16 lookup(B16 table, B16 index) { return vqtbl1q_u8(table, index); }
  // Shifts each byte right by a count known at run time, 0 to 7.
  static B16 shift_right(B16 a, int count) { return vshlq_u8(a, vdupq_n_s8(static_cast<int8_t>(-count))); }
  static B16 shift_left(B16 a, int count) { return vshlq_u8(a, vdupq_n_s8(static_cast<int8_t>(count))); }
  // Low byte to the first eight, high byte to the last eight.
  static B16 spread(uint16_t two) {
    return vcombine_u8(vdup_n_u8(static_cast<uint8_t>(two)), vdup_n_u8(static_cast<uint8_t>(two >> 8)));
  }

  struct I8x32 {
    int8x16_t low;
    int8x16_t high;
  };
  static I8x32 join(B16 low, B16 high) { return {vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)}; }
  static I8x32 load_quants(const int8_t* from) { return {vld1q_s8(from), vld1q_s8(from + 16)}; }

  // -- products of bytes

  // The 16-element product as four partial sums.
  static int32x4_t dot16(int8x16_t a, int8x16_t b) {
    const int16x8_t products = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    return vpaddlq_s16(vmlal_s8(products, vget_high_s8(a), vget_high_s8(b)));
  }
  static I4 sum_rows(const int32x4_t (&rows)[4]) {
    return vpaddq_s32(vpaddq_s32(rows[0], rows[1]), vpaddq_s32(rows[2], rows[3]));
  }

  // sums[token] = {weights[0] · x, ... weights[3] · x}
  template <int N>
  static void dots(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    dots_by<Neon, N>(weights, x, sums);
  }
  // The same with each half of row r times scales.low[r] or scales.high[r].
  template <int N>
  static void scaled_dots(const I8x32 (&weights)[4], const HalfScales& scales,
                          const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    scaled_dots_by<Neon, N>(weights, scales, x, sums);
  }

 protected:
  template <class Level, int N>
  static void dots_by(const I8x32 (&weights)[4], const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    for (int n = 0; n < N; ++n) {
      const I8x32 token = load_quants(x[n]->quants);
      int32x4_t rows[4];
      for (int r = 0; r < 4; ++r) {
        rows[r] =
            vaddq_s32(Level::dot16(weights[r].low, token.low), Level::dot16(weights[r].high, token.high));
      }
      sums[n] = sum_rows(rows);
    }
  }
  template <class Level, int N>
  static void scaled_dots_by(const I8x32 (&weights)[4], const HalfScales& scales,
                             const ActivationBlock* const (&x)[N], I4 (&sums)[N]) {
    for (int n = 0; n < N; ++n) {
      const I8x32 token = load_quants(x[n]->quants);
      int32x4_t rows[4];
      for (int r = 0; r < 4; ++r) {
        const int32x4_t low = vmulq_n_s32(Level::dot16(weights[r].low, token.low), scales.low[r]);
        rows[r] = vmlaq_n_s32(low, Level::dot16(weights[r].high, token.high), scales.high[r]);
      }
      sums[n] = sum_rows(rows);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
