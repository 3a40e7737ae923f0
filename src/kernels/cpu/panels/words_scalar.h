// The words of panels in portable C++: four bytes of each of four rows (P), a sum for each row (S). Calls stay calls: inlined,
// they take a minute to compile.
#pragma once

#include "kernels/cpu/simd/vec_scalar.h"

namespace sluice::kernels::cpu {
namespace {

struct PanelScalar : Scalar {
  using P = B16;
  using S = I4;
  static constexpr bool kWideCodes = true;
  static constexpr int kPanelsAtOnce = 1;
  static constexpr int kPanelVectors = 1;
  static P panel_load(const uint8_t* from) { return load_bytes(from); }
  template <int Count>
  [[gnu::noinline]] static P panel_shift(P a) {
    return Count < 0 ? shift_right(a, -Count) : shift_left(a, Count);
  }
  [[gnu::noinline]] static P panel_and(P a, int mask) {
    return bit_and(a, bytes(static_cast<uint8_t>(mask)));
  }
  [[gnu::noinline]] static P panel_or(P a, P b) { return bit_or(a, b); }
  static P panel_flip(P a) {
    return each_byte([&](int i) { return a.byte[i] ^ 0x80; });
  }
  [[gnu::noinline]] static P panel_lookup(const uint8_t (&table)[16], P index) {
    return lookup(load_bytes(table), index);
  }
  static void panel_store(uint8_t* to, P value) { std::memcpy(to, value.byte, sizeof value); }
  static S panel_ints(int32_t value) { return {value, value, value, value}; }
  static const int8_t* panel_x(const int8_t* four) { return four; }
  [[gnu::noinline]] static S panel_dot(S sum, const P& codes, const int8_t* x) {
    for (int i = 0; i < 16; ++i) sum.lane[i / 4] += codes.byte[i] * x[i % 4];
    return sum;
  }
  [[gnu::noinline]] static S panel_dot_signed(S sum, const P& weights, const int8_t* x) {
    for (int i = 0; i < 16; ++i) sum.lane[i / 4] += static_cast<int8_t>(weights.byte[i]) * x[i % 4];
    return sum;
  }
  static F panel_float(S sum) { return to_float4(sum); }
};

}  // namespace
}  // namespace sluice::kernels::cpu
