// The words of panels on aarch64: four bytes of each of four rows (P), a sum for each row (S).
#pragma once

#include "kernels/cpu/simd/vec_neon.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelNeon : Neon {
  using P = uint8x16_t;
  using S = int32x4_t;
  static constexpr bool kWideCodes = false;  // products of bytes are signed
  static constexpr bool kFollowsStreams = true;
  static constexpr int kPanelsAtOnce = 1;
  static constexpr int kPanelVectors = 2;  // whose integer sums are held at once
  static P panel_load(const uint8_t* from) { return vld1q_u8(from); }
  // Left, or right where Count is negative; a mask follows.
  template <int Count>
  static P panel_shift(P a) {
    return vshlq_u8(a, vdupq_n_s8(Count));
  }
  static P panel_high_nibble(P a) { return vshrq_n_u8(a, 4); }
  static P panel_and(P a, int mask) { return vandq_u8(a, vdupq_n_u8(static_cast<uint8_t>(mask))); }
  static P panel_or(P a, P b) { return vorrq_u8(a, b); }
  static P panel_flip(P a) { return veorq_u8(a, vdupq_n_u8(0x80)); }
  static P panel_lookup(const uint8_t (&table)[16], P index) { return vqtbl1q_u8(vld1q_u8(table), index); }
  static void panel_store(uint8_t* to, P value) { vst1q_u8(to, value); }
  static S panel_ints(int32_t value) { return vdupq_n_s32(value); }
  static int8x16_t panel_x(const int8_t* four) {
    int32_t word;
    __builtin_memcpy(&word, four, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
  }
  static S panel_dot_signed(S sum, P weights, int8x16_t x) {
    const int8x16_t w = vreinterpretq_s8_u8(weights);
    const int32x4_t first = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    const int32x4_t second = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(x)));
    return vaddq_s32(sum, vpaddq_s32(first, second));
  }
  static S panel_dot(S sum, P codes, int8x16_t x) { return panel_dot_signed(sum, codes, x); }
  static F panel_float(S sum) { return vcvtq_f32_s32(sum); }
};

}  // namespace
}  // namespace sluice::kernels::cpu
