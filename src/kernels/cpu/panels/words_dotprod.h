// The words of panels with SDOT.
#pragma once

#include "kernels/cpu/panels/words_neon.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelDotprod : PanelNeon {
  static S panel_dot_signed(S sum, P weights, int8x16_t x) {
    return vdotq_s32(sum, vreinterpretq_s8_u8(weights), x);
  }
  template <int Q>
  static S panel_dot_lane(S sum, P codes, const int8_t* x) {
    return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(codes), vld1q_s8(x + Q / 4 * 16), Q % 4);
  }
  static S panel_dot(S sum, P codes, int8x16_t x) { return panel_dot_signed(sum, codes, x); }
};

}  // namespace
}  // namespace sluice::kernels::cpu
