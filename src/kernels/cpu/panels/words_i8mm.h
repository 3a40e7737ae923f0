// The words of panels with SMMLA: codes are signed, and rows and tokens are multiplied two by two.
#pragma once

#include "kernels/cpu/panels/words_dotprod.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelI8mm : PanelDotprod {
  static constexpr bool kSignedCodes = true;
  static P panel_subtract(P a, int value) { return vsubq_u8(a, vdupq_n_u8(static_cast<uint8_t>(value))); }

  // Integer sums start at the bits of a float whose unit is 1, so that they are floats but for one subtraction: exact
  // below 2^22, and a piece of 32 products of bytes stays below 2^19.
  static constexpr int32_t kFloatBits = 0x4b400000;
  static constexpr float kFloatStart = 12582912.0f;
  static S start() { return vdupq_n_s32(kFloatBits); }
  static F float_of(S sum) { return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(kFloatStart)); }

  // Two vectors whose lanes alternate: {a0, b0, a1, b1}, {a2, b2, a3, b3}.
  struct Two {
    P low, high;
  };
  static Two zip(P a, P b) {
    const uint32x4_t x = vreinterpretq_u32_u8(a), y = vreinterpretq_u32_u8(b);
    return {vreinterpretq_u8_u32(vzip1q_u32(x, y)), vreinterpretq_u8_u32(vzip2q_u32(x, y))};
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
