// How codes and scales of a panel in pairs (format.h) become vectors in registers. Included by panels_i8mm.cpp only.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/codes.h"
#include "kernels/cpu/panels/words_dotprod.h"

namespace sluice::kernels::cpu {
namespace {

using PairWords = PanelDotprod;
using PairScales = PieceScales<PairWords>;

// What tiles are compiled for.
struct PairKind {
  bool halves = false;  // a scale for each 16 columns
  bool mins = false;
  bool sixteenths = false;  // codes are 16 times what they stand for

  // Integer sums start at the bits of a float whose unit is that of the codes, so that they are floats but for one
  // subtraction: exact below 2^22 units, and a piece of 32 products of bytes stays below 2^19.
  constexpr int32_t start_bits() const { return sixteenths ? 0x49400000 : 0x4b400000; }
  constexpr float start() const { return sixteenths ? 786432.0f : 12582912.0f; }
  constexpr int vectors() const { return 1 + (halves ? 2 : 0) + (mins ? (halves ? 2 : 1) : 0); }
};

template <PanelFormat F>
constexpr PairKind pair_kind() {
  return {F.scales == PanelFormat::Scales::HalfScales || F.scales == PanelFormat::Scales::TwoHalves, F.mins,
          F.signed_in_pairs() && F.base == PanelFormat::Base::Nibbles};
}

// Whether codes carry an offset in registers too, where nothing takes it off.
template <PanelFormat F>
constexpr bool pair_offset() {
  return F.offset_bits >= 0 && F.codes == PanelFormat::Codes::Plain && !F.signed_in_pairs();
}

template <PairKind K>
[[gnu::always_inline]] inline float32x4_t pair_float(int32x4_t sum) {
  return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(K.start()));
}

// The bits of `from` moved left by Count, right where it is negative.
template <int Count>
[[gnu::always_inline]] inline uint8x16_t shifted(uint8x16_t from) {
  if constexpr (Count > 0) return vshlq_n_u8(from, Count);
  if constexpr (Count < 0) return vshrq_n_u8(from, -Count);
  return from;
}

// Group C of a pair of rows; `codes` are the piece's. The offset of codes that are not stored without it is taken off where
// `Less` says so.
template <PanelFormat F, int C, bool Less>
[[gnu::always_inline]] inline int8x16_t pair_group(const uint8_t* codes, int pair) {
  using Base = PanelFormat::Base;
  const auto mask = [](int bits) { return vdupq_n_u8(static_cast<uint8_t>(bits)); };
  uint8x16_t group;
  if constexpr (F.base == Base::Nibbles) {
    const uint8x16_t both = vld1q_u8(codes + (2 * pair + C % 2) * 16);
    if constexpr (F.signed_in_pairs()) {
      group = C < 2 ? vshlq_n_u8(both, 4) : vandq_u8(both, mask(0xf0));
    } else {
      group = C < 2 ? vandq_u8(both, mask(0xf)) : vshrq_n_u8(both, 4);
    }
  } else if constexpr (F.base == Base::TwoBits) {
    group = vandq_u8(shifted<-2 * C>(vld1q_u8(codes + pair * 16)), mask(3));
  } else {
    group = vld1q_u8(codes + (4 * pair + C) * 16);
  }
  if constexpr (F.high == PanelFormat::High::One) {
    constexpr int kBits = F.base_bits();
    const uint8x16_t bits = vld1q_u8(codes + F.base_bytes() + pair / 2 * 16);
    const uint8x16_t high = pair % 2 == 0 ? shifted<kBits - C>(bits) : shifted<kBits - C - 4>(bits);
    group = vorrq_u8(group, vandq_u8(high, mask(1 << kBits)));
  } else if constexpr (F.high == PanelFormat::High::Two) {
    const uint8x16_t bits = vld1q_u8(codes + F.base_bytes() + pair * 16);
    group = vorrq_u8(group, vandq_u8(shifted<4 - 2 * C>(bits), mask(0x30)));
  }
  if constexpr (F.codes != PanelFormat::Codes::Plain) {
    static constexpr CodeTables kTable(F.codes, 0);
    group = vqtbl1q_u8(vld1q_u8(kTable.values), group);
  } else if constexpr (Less && pair_offset<F>()) {
    group = vsubq_u8(group, mask(1 << F.offset_bits));
  }
  return vreinterpretq_s8_u8(group);
}

// The scales of a super-block's head as floats: made once for its pieces, since conversions are slow.
struct PairHead {
  float d[kPanelRows];
  float min[kPanelRows];  // negated
};

template <PanelFormat F>
[[gnu::always_inline]] inline void read_head(PairHead& to, const uint8_t* head) {
  if constexpr (F.head_bytes() == 0) return;
  for (int lane = 0; lane < kPanelRows; lane += 4) {
    float32x4_t d = PairWords::load_f16(head + 2 * lane);
    if constexpr (F.shift > 0) d = vmulq_n_f32(d, 1.0f / (1 << F.shift));
    vst1q_f32(to.d + lane, d);
    if constexpr (F.mins) vst1q_f32(to.min + lane, vnegq_f32(PairWords::load_f16(head + 32 + 2 * lane)));
  }
}

// Four of 16 bytes, from `lane` on, as floats; those of other lanes share the widening.
template <bool kSigned>
[[gnu::always_inline]] inline float32x4_t four_floats(const uint8_t* sixteen, int lane) {
  if constexpr (kSigned) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(sixteen));
    const int16x8_t eight = lane < 8 ? vmovl_s8(vget_low_s8(bytes)) : vmovl_high_s8(bytes);
    return vcvtq_f32_s32(lane % 8 == 0 ? vmovl_s16(vget_low_s16(eight)) : vmovl_high_s16(eight));
  } else {
    const uint8x16_t bytes = vld1q_u8(sixteen);
    const uint16x8_t eight = lane < 8 ? vmovl_u8(vget_low_u8(bytes)) : vmovl_high_u8(bytes);
    return vcvtq_f32_u32(lane % 8 == 0 ? vmovl_u16(vget_low_u16(eight)) : vmovl_high_u16(eight));
  }
}

// Of four rows from `lane` on.
template <PanelFormat F>
[[gnu::always_inline]] inline PairScales scales_of_four(const PairHead& head, const uint8_t* piece,
                                                        int lane) {
  using Scales = PanelFormat::Scales;
  if constexpr (F.head_bytes() == 0) {
    return scales_of<PairWords, F>(nullptr, piece, lane);
  } else {
    PairScales s;
    const float32x4_t d = vld1q_f32(head.d + lane);
    if constexpr (F.scales == Scales::KScales) {
      s.scale = vmulq_f32(d, four_floats<false>(piece, lane));
      s.min[0] = vmulq_f32(vld1q_f32(head.min + lane), four_floats<false>(piece + 16, lane));
    } else {
      s.scale = d;
      for (int h = 0; h < 2; ++h) {
        if constexpr (F.mins) {
          s.half[h] = four_bits_of<PairWords>(piece + 16 * h + lane, 0);
          s.min[h] = vmulq_f32(vld1q_f32(head.min + lane), four_bits_of<PairWords>(piece + 16 * h + lane, 4));
        } else {
          s.half[h] = four_floats<true>(piece + 16 * h, lane);
        }
      }
    }
    return s;
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
