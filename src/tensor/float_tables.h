// The types of bitsandbytes, whose nibbles index a table of 16 floats between -1 and 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

constexpr bool has_float_table(DType type) {
  return type == DType::NF4 || type == DType::FP4;
}

// REQUIRES: has_float_table(type).
constexpr std::array<float, 16> float_table(DType type) {
  if (type == DType::NF4)
    return {-1.0f,
            -0.6961928009986877f,
            -0.5250730514526367f,
            -0.39491748809814453f,
            -0.28444138169288635f,
            -0.18477343022823334f,
            -0.09105003625154495f,
            0.0f,
            0.07958029955625534f,
            0.16093020141124725f,
            0.24611230194568634f,
            0.33791524171829224f,
            0.44070982933044434f,
            0.5626170039176941f,
            0.7229568362236023f,
            1.0f};
  constexpr float kSixth = 1.0f / 6.0f, kThird = 1.0f / 3.0f, kLeast = 1.0f / 192.0f;
  return {0.0f,  kLeast,  2 * kThird,  1.0f,  kThird,  0.5f,  kSixth,  0.25f,
          -0.0f, -kLeast, -2 * kThird, -1.0f, -kThird, -0.5f, -kSixth, -0.25f};
}

// The table as bytes, for back-ends that multiply bytes: byte * byte_factor is the nearest to the table that one factor allows,
// 0.0017 off in NF4 and 0.0011 in FP4 (root of the mean square), where the table's own is 0.52 and 0.49.
constexpr float byte_factor(DType type) {
  return type == DType::NF4 ? 1.0f / 112.03022f : 1.0f / 120.0f;
}
constexpr std::array<int8_t, 16> byte_table(DType type) {
  std::array<int8_t, 16> bytes{};
  for (size_t i = 0; i < 16; ++i) {
    const float value = float_table(type)[i] / byte_factor(type);
    bytes[i] = static_cast<int8_t>(value + (value < 0 ? -0.5f : 0.5f));
  }
  return bytes;
}

}  // namespace sluice
