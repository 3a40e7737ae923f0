// The words of panels with SDOT.
#pragma once

#include "kernels/cpu/panels/words_neon.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelDotprod : PanelNeon {
  static S panel_dot_signed(S sum, P weights, int8x16_t x) {
    return vdotq_s32(sum, vreinterpretq_s8_u8(weights), x);
  }
  static S panel_dot(S sum, P codes, int8x16_t x) { return panel_dot_signed(sum, codes, x); }
};

}  // namespace
}  // namespace sluice::kernels::cpu
