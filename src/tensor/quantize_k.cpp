// The K types: 256 elements whose groups have integer scales (and minima) of their own.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/half.h"
#include "tensor/quantize.h"

namespace sluice {

namespace {

constexpr int kLargestGroup = 32;

int nearest(float value) {
  return static_cast<int>(std::nearbyint(value));
}

float stored_half(uint8_t* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, 2);
  return f16_to_f32(bits);
}

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

float deviation(float difference, bool absolute) {
  return absolute ? std::abs(difference) : difference * difference;
}

// x[i] ~ scale * code - min with the least weighted error among candidates.
ScaleAndMin search_range(const float* x, const float* weights, int count, const RangeSearch& search) {
  float low = std::min(0.0f, *std::min_element(x, x + count));
  const float high = *std::max_element(x, x + count);
  float sum_w = 0.0f, sum_x = 0.0f;
  for (int i = 0; i < count; ++i) {
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (high <= low) return {0.0f, -low};
  const float span = high - low;
  const auto code = [&](float inverse, int i) {
    return static_cast<float>(std::clamp(nearest(inverse * (x[i] - low)), 0, search.most));
  };
  const float plain = static_cast<float>(search.most) / span;
  ScaleAndMin best{1.0f / plain, -low};
  float best_error = 0.0f;
  for (int i = 0; i < count; ++i)
    best_error += weights[i] * deviation(best.scale * code(plain, i) + low - x[i], search.absolute);
  for (int step = 0; step <= search.steps; ++step) {
    const float inverse =
        (search.first + search.step * static_cast<float>(step) + static_cast<float>(search.most)) / span;
    float sum_l = 0.0f, sum_l2 = 0.0f, sum_xl = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float l = code(inverse, i);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0.0f)) continue;
    float scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (min > 0.0f) {
      min = 0.0f;
      scale = sum_xl / sum_l2;
    }
    float error = 0.0f;
    for (int i = 0; i < count; ++i)
      error += weights[i] * deviation(scale * code(inverse, i) + min - x[i], search.absolute);
    if (error >= best_error) continue;
    best_error = error;
    best = {scale, -min};
  }
  return best;
}

// x[i] ~ scale * code with codes in [-half, half); errors weigh by the square of the element.
float search_scale(const float* x, int count, int half) {
  float most = 0.0f;
  for (int i = 0; i < count; ++i)
    if (std::abs(x[i]) > std::abs(most)) most = x[i];
  if (std::abs(most) < 1e-15f) return 0.0f;
  float best_scale = 0.0f, best_fit = 0.0f;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(static_cast<float>(half) + 0.1f * static_cast<float>(step)) / most;
    float along = 0.0f, square = 0.0f;
    for (int i = 0; i < count; ++i) {
      const auto l = static_cast<float>(std::clamp(nearest(inverse * x[i]), -half, half - 1));
      const float weight = x[i] * x[i];
      along += weight * x[i] * l;
      square += weight * l * l;
    }
    if (square <= 0.0f || along * along <= best_fit * square) continue;
    best_fit = along * along / square;
    best_scale = along / square;
  }
  return best_scale;
}

// The element of largest magnitude.
float extreme_of(const float* values, int count) {
  float found = 0.0f;
  for (int i = 0; i < count; ++i)
    if (std::abs(values[i]) > std::abs(found)) found = values[i];
  return found;
}

// Scales and minima of 256 elements, as integers times one scale each.
template <int Groups>
struct Ranges {
  int scales[static_cast<size_t>(Groups)], mins[static_cast<size_t>(Groups)];
  float d, dmin;  // as stored

  // d and dmin are written to `to`.
  Ranges(const float* x, const RangeSearch& search, int most_scale, uint8_t* to) {
    constexpr int kCount = 256 / Groups;
    ScaleAndMin found[static_cast<size_t>(Groups)];
    float largest_scale = 0.0f, largest_min = 0.0f;
    for (int g = 0; g < Groups; ++g) {
      const float* part = x + g * kCount;
      float square = 0.0f, weights[kLargestGroup];
      for (int i = 0; i < kCount; ++i) square += part[i] * part[i];
      const float mean = search.absolute ? 0.0f : std::sqrt(square / kCount);
      for (int i = 0; i < kCount; ++i) weights[i] = mean + std::abs(part[i]);
      found[g] = search_range(part, weights, kCount, search);
      largest_scale = std::max(largest_scale, found[g].scale);
      largest_min = std::max(largest_min, found[g].min);
    }
    const auto most = static_cast<float>(most_scale);
    const float inverse_scale = largest_scale > 0.0f ? most / largest_scale : 0.0f;
    const float inverse_min = largest_min > 0.0f ? most / largest_min : 0.0f;
    for (int g = 0; g < Groups; ++g) {
      scales[g] = std::clamp(nearest(inverse_scale * found[g].scale), 0, most_scale);
      mins[g] = std::clamp(nearest(inverse_min * found[g].min), 0, most_scale);
    }
    d = stored_half(to, largest_scale / most);
    dmin = stored_half(to + 2, largest_min / most);
  }

  // With the scales as stored.
  int code(const float* x, int i, int most) const {
    const int g = i / (256 / Groups);
    const float scale = d * static_cast<float>(scales[g]);
    if (scale == 0.0f) return 0;
    return std::clamp(nearest((x[i] + dmin * static_cast<float>(mins[g])) / scale), 0, most);
  }
};

// Six bits each of eight scales and minima in twelve bytes.
void store_six_bits(uint8_t* to, const Ranges<8>& ranges) {
  std::memset(to, 0, 12);
  for (int g = 0; g < 8; ++g) {
    const int scale = ranges.scales[g], min = ranges.mins[g];
    if (g < 4) {
      to[g] = static_cast<uint8_t>(to[g] | scale);
      to[g + 4] = static_cast<uint8_t>(to[g + 4] | min);
    } else {
      to[g + 4] = static_cast<uint8_t>((scale & 0xf) | (min & 0xf) << 4);
      to[g - 4] = static_cast<uint8_t>(to[g - 4] | (scale >> 4) << 6);
      to[g] = static_cast<uint8_t>(to[g] | (min >> 4) << 6);
    }
  }
}

// Scales of 16 groups for codes in [-half, half), and d so that the extreme becomes -most.
struct SignedScales {
  int scales[16];
  float d;

  SignedScales(const float* x, int half, int most, uint8_t* to) {
    float found[16];
    for (int g = 0; g < 16; ++g) found[g] = search_scale(x + 16 * g, 16, half);
    const float largest = extreme_of(found, 16);
    const float inverse = largest == 0.0f ? 0.0f : static_cast<float>(-most) / largest;
    for (int g = 0; g < 16; ++g) scales[g] = std::clamp(nearest(inverse * found[g]), -most, most - 1);
    d = stored_half(to, inverse == 0.0f ? 0.0f : 1.0f / inverse);
  }

  // From 0 on.
  int code(const float* x, int i, int half) const {
    const int group = i / 16;
    const float scale = d * static_cast<float>(scales[group]);
    if (scale == 0.0f) return half;
    return std::clamp(nearest(x[i] / scale), -half, half - 1) + half;
  }
};

}  // namespace

void quantize_q2_k(const float* x, uint8_t* out) {
  std::memset(out, 0, 84);
  const Ranges<16> ranges(x, {.most = 3, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute = true}, 15,
                          out + 80);
  for (int g = 0; g < 16; ++g) out[g] = static_cast<uint8_t>(ranges.scales[g] | ranges.mins[g] << 4);
  for (int i = 0; i < 256; ++i)
    out[16 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>(ranges.code(x, i, 3) << (i % 128 / 32 * 2));
}

void quantize_q3_k(const float* x, uint8_t* out) {
  std::memset(out, 0, 110);
  const SignedScales scales(x, 4, 32, out + 108);
  for (int g = 0; g < 16; ++g) {
    const int stored = scales.scales[g] + 32;
    out[96 + g % 8] |= static_cast<uint8_t>((stored & 0xf) << (g / 8 * 4));
    out[104 + g % 4] |= static_cast<uint8_t>((stored >> 4) << (g / 4 * 2));
  }
  for (int i = 0; i < 256; ++i) {
    const int code = scales.code(x, i, 4);
    out[32 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>((code & 3) << (i % 128 / 32 * 2));
    out[i % 32] |= static_cast<uint8_t>((code >> 2) << (i / 32));
  }
}

void quantize_q4_k(const float* x, uint8_t* out) {
  std::memset(out, 0, 144);
  const Ranges<8> ranges(x, {.most = 15, .first = -1.0f, .step = 0.1f, .steps = 20, .absolute = false}, 63,
                         out);
  store_six_bits(out + 4, ranges);
  for (int i = 0; i < 256; ++i)
    out[16 + i / 64 * 32 + i % 32] |= static_cast<uint8_t>(ranges.code(x, i, 15) << (i % 64 / 32 * 4));
}

void quantize_q5_k(const float* x, uint8_t* out) {
  std::memset(out, 0, 176);
  const Ranges<8> ranges(x, {.most = 31, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute = false}, 63,
                         out);
  store_six_bits(out + 4, ranges);
  for (int i = 0; i < 256; ++i) {
    const int code = ranges.code(x, i, 31);
    out[48 + i / 64 * 32 + i % 32] |= static_cast<uint8_t>((code & 0xf) << (i % 64 / 32 * 4));
    out[16 + i % 32] |= static_cast<uint8_t>((code >> 4) << (i / 32));
  }
}

void quantize_q6_k(const float* x, uint8_t* out) {
  std::memset(out, 0, 210);
  const SignedScales scales(x, 32, 128, out + 208);
  for (int g = 0; g < 16; ++g) out[192 + g] = static_cast<uint8_t>(static_cast<int8_t>(scales.scales[g]));
  for (int i = 0; i < 256; ++i) {
    const int code = scales.code(x, i, 32);
    out[i / 128 * 64 + i % 64] |= static_cast<uint8_t>((code & 0xf) << (i % 128 / 64 * 4));
    out[128 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>((code >> 4) << (i % 128 / 32 * 2));
  }
}

}  // namespace sluice
