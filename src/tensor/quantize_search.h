// Searches for the scales of a block's groups, of least weighted error. Used by the quantisers alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace sluice {

inline constexpr int kLargestGroup = 32;  // elements that share one scale

// The half of `value`, stored; as a float.
inline float stored_half(uint8_t* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, 2);
  return f16_to_f32(bits);
}

// To the nearest, halves to the even one.
int nearest_integer(float value);

// The element of largest magnitude; 0 where all are 0.
float extreme_of(const float* values, int count);

// How much errors count where columns have an importance: by it, and more the larger the element is beside the root of
// `spread`, a mean square.
void weigh_by_importance(const float* x, const float* importance, int count, float spread, float* weights);
float mean_square(const float* x, int count);

struct ScaleAndMin {
  float scale = 0.0f;
  float min = 0.0f;  // subtracted
};

// How a search for scale and minimum goes over candidates.
struct RangeSearch {
  int most;  // codes are 0 to this
  float first, step;
  int steps;
  bool absolute;  // errors count by size, not by square
};

// x[i] ~ scale * code - min with the least weighted error among candidates.
ScaleAndMin search_range(const float* x, const float* weights, int count, const RangeSearch& search);

// x[i] ~ scale * code with codes in [-half, half).
float search_scale(const float* x, const float* weights, int count, int half);

// values[i] ~ scale * integer with integers in [0, most]; values are not negative.
float search_unsigned_scale(const float* values, const float* weights, int count, int most);

}  // namespace sluice
