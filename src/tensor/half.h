// Conversions between f32 and the short floats, in plain integer arithmetic: the meaning the kernels match.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace sluice {

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even; NaN stays NaN.
inline uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Round to nearest even; overflow gives infinity.
inline uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below the smallest normal half: adding 0.5 rounds at bit 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// OCP e4m3 ("fn"): no infinities, 0x7f and 0xff are NaN, largest 448.
inline float e4m3_to_f32(uint8_t bits) {
  const int exponent = (bits >> 3) & 0xf;
  const int mantissa = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) magnitude = std::bit_cast<float>(0x7fc00000u);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// Half of an e4m3 without sign, as NVFP4 has them; 0x7f is 0.
inline float half_ue4m3(uint8_t bits) {
  if (bits == 0x7f) return 0.0f;
  const int exponent = (bits >> 3) & 0xf, mantissa = bits & 7;
  return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -10)
                       : std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
}

// Round to nearest even; what is larger than 448 becomes 448.
inline uint8_t f32_to_e4m3(float value) {
  constexpr uint32_t kLargest = 0x7e, kNan = 0x7f;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | kNan);
  if (magnitude < 0x3c800000u) {  // below the smallest normal, 2^-6: steps of 2^-9
    return static_cast<uint8_t>(sign |
                                static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 512)));
  }
  const uint32_t rounded = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - 0x3c000000u) >> 20;
  return static_cast<uint8_t>(sign | (rounded < kLargest ? rounded : kLargest));
}

}  // namespace sluice
