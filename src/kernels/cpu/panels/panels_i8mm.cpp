// GEMMs over panels with SMMLA.
#include "kernels/cpu/panels/pairs/gemm_pairs.h"
#include "kernels/cpu/panels/quantize.h"

namespace sluice::kernels::cpu {

namespace {

// Tokens: one is as fast with SDOT, which wants no pairs.
constexpr int64_t kPairsFrom = 2;

// The numbers of quantize_for_panels at one token's place in `count` tiles: eight columns of two tokens lie together.
void quantize_into_pairs(ActivationTile* out, int64_t place, const float* x, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const int64_t first = place / 2 * 64 + place % 2 * 8;
  for (int64_t b = 0; b < count; ++b, x += 32, ++out) {
    float32x4_t values[8];
    uint32x4_t largest = vdupq_n_u32(0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      values[i] = vld1q_f32(x + 4 * i);
      // Bits of floats without their sign are in the order of the floats, and what is not finite comes last.
      largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(values[i])));
    }
    int8_t* quants = &out->quants[0][0] + first;
    const uint32_t bits = vmaxvq_u32(largest);
    if (bits >= kInfinity) {
      for (int c = 0; c < 4; ++c) vst1_s8(quants + 16 * c, vdup_n_s8(0));
      out->scale[place] = out->sum[place] = out->half_sums[0][place] = out->half_sums[1][place] =
          __builtin_nanf("");
      continue;
    }
    const float most = __builtin_bit_cast(float, bits);
    const float scale = most < kSmallestBlock ? 0.0f : most / 127.0f;
    const float32x4_t inverse = vdupq_n_f32(most < kSmallestBlock ? 0.0f : 127.0f / most);
    int8x8_t eight[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const int16x4_t low = vmovn_s32(vcvtnq_s32_f32(vmulq_f32(values[2 * c], inverse)));
      const int16x4_t high = vmovn_s32(vcvtnq_s32_f32(vmulq_f32(values[2 * c + 1], inverse)));
      eight[c] = vmovn_s16(vcombine_s16(low, high));
      vst1_s8(quants + 16 * c, eight[c]);
    }
    const int low = vaddlvq_s8(vcombine_s8(eight[0], eight[1]));
    const int high = vaddlvq_s8(vcombine_s8(eight[2], eight[3]));
    out->scale[place] = scale;
    out->sum[place] = scale * static_cast<float>(low + high);
    out->half_sums[0][place] = scale * static_cast<float>(low);
    out->half_sums[1][place] = scale * static_cast<float>(high);
  }
}

}  // namespace

const PanelKernels& i8mm_panels() {
  static constexpr PanelKernels kKernels{.gemm = gemm_pairs,
                                         .quantize = quantize_for_panels<PairWords>,
                                         .quantize_tiles = quantize_into_pairs,
                                         .tiles_from = kPairsFrom,
                                         .codes = PanelLayout::Pairs};
  return kKernels;
}

}  // namespace sluice::kernels::cpu
