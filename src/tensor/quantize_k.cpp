// The K types: 256 elements whose groups have integer scales (and minima) of their own.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/quantize.h"
#include "tensor/quantize_search.h"

namespace sluice {

namespace {

// Scales and minima of 256 elements, as integers times one scale each.
template <int Groups>
struct Ranges {
  int scales[static_cast<size_t>(Groups)], mins[static_cast<size_t>(Groups)];
  float d, dmin;  // as stored

  // d and dmin are written to `to`.
  Ranges(const float* x, const float* importance, RangeSearch search, int most_scale, uint8_t* to) {
    constexpr int kCount = 256 / Groups;
    float found[static_cast<size_t>(Groups)], lows[static_cast<size_t>(Groups)],
        sums[static_cast<size_t>(Groups)] = {};
    if (importance != nullptr)
      search = {.most = search.most, .first = -0.9f, .step = 0.05f, .steps = 36, .absolute = false};
    const float spread = (Groups == 8 ? 2.0f : 1.0f) * mean_square(x, 256);
    for (int g = 0; g < Groups; ++g) {
      const float* part = x + g * kCount;
      float weights[kLargestGroup];
      if (importance != nullptr) {
        weigh_by_importance(part, importance + g * kCount, kCount, spread, weights);
      } else {
        const float mean = search.absolute ? 0.0f : std::sqrt(mean_square(part, kCount));
        for (int i = 0; i < kCount; ++i) weights[i] = mean + std::abs(part[i]);
      }
      const ScaleAndMin best = search_range(part, weights, kCount, search);
      found[g] = best.scale;
      lows[g] = best.min;
      for (int i = 0; i < kCount; ++i) sums[g] += weights[i];
    }
    const float* weights = importance != nullptr ? sums : nullptr;
    d = integers(found, weights, most_scale, scales, to);
    dmin = integers(lows, weights, most_scale, mins, to + 2);
  }

  // values[g] ~ d * out[g]; d is stored. Without weights the largest one becomes `most`.
  static float integers(const float* values, const float* weights, int most, int* out, uint8_t* to) {
    const float largest = *std::max_element(values, values + Groups);
    const float fitted = weights != nullptr && largest > 0.0f
                             ? search_unsigned_scale(values, weights, Groups, most)
                             : std::max(0.0f, largest) / static_cast<float>(most);
    const float inverse = weights != nullptr ? (fitted > 0.0f ? 1.0f / fitted : 0.0f)
                          : largest > 0.0f   ? static_cast<float>(most) / largest
                                             : 0.0f;
    for (int g = 0; g < Groups; ++g) out[g] = std::clamp(nearest_integer(inverse * values[g]), 0, most);
    return stored_half(to, fitted);
  }

  // With the scales as stored.
  int code(const float* x, int i, int most) const {
    const int g = i / (256 / Groups);
    const float scale = d * static_cast<float>(scales[g]);
    if (scale == 0.0f) return 0;
    return std::clamp(nearest_integer((x[i] + dmin * static_cast<float>(mins[g])) / scale), 0, most);
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

  // Scales count by the weights of their elements where those have an importance and there are few scales to choose from.
  SignedScales(const float* x, const float* importance, int half, int most, uint8_t* to) {
    float found[16], sums[16] = {};
    const float spread = 2.0f * mean_square(x, 256);
    for (int g = 0; g < 16; ++g) {
      const float* part = x + 16 * g;
      float weights[16];
      if (importance == nullptr) {
        for (int i = 0; i < 16; ++i) weights[i] = part[i] * part[i];
      } else {
        weigh_by_importance(part, importance + 16 * g, 16, spread, weights);
      }
      found[g] = search_scale(part, weights, 16, half);
      for (int i = 0; i < 16; ++i) sums[g] += weights[i];
    }
    const float largest = extreme_of(found, 16);
    float inverse = largest == 0.0f ? 0.0f : static_cast<float>(-most) / largest;
    if (importance != nullptr && most < 64)
      if (const float fitted = search_scale(found, sums, 16, most); fitted != 0.0f) inverse = 1.0f / fitted;
    for (int g = 0; g < 16; ++g) scales[g] = std::clamp(nearest_integer(inverse * found[g]), -most, most - 1);
    d = stored_half(to, inverse == 0.0f ? 0.0f : 1.0f / inverse);
  }

  // From 0 on.
  int code(const float* x, int i, int half) const {
    const int group = i / 16;
    const float scale = d * static_cast<float>(scales[group]);
    if (scale == 0.0f) return half;
    return std::clamp(nearest_integer(x[i] / scale), -half, half - 1) + half;
  }
};

}  // namespace

void quantize_q2_k(const float* x, const float* importance, uint8_t* out) {
  std::memset(out, 0, 84);
  const Ranges<16> ranges(
      x, importance, {.most = 3, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute = true}, 15, out + 80);
  for (int g = 0; g < 16; ++g) out[g] = static_cast<uint8_t>(ranges.scales[g] | ranges.mins[g] << 4);
  for (int i = 0; i < 256; ++i)
    out[16 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>(ranges.code(x, i, 3) << (i % 128 / 32 * 2));
}

void quantize_q3_k(const float* x, const float* importance, uint8_t* out) {
  std::memset(out, 0, 110);
  const SignedScales scales(x, importance, 4, 32, out + 108);
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

void quantize_q4_k(const float* x, const float* importance, uint8_t* out) {
  std::memset(out, 0, 144);
  const Ranges<8> ranges(x, importance,
                         {.most = 15, .first = -1.0f, .step = 0.1f, .steps = 20, .absolute = false}, 63, out);
  store_six_bits(out + 4, ranges);
  for (int i = 0; i < 256; ++i)
    out[16 + i / 64 * 32 + i % 32] |= static_cast<uint8_t>(ranges.code(x, i, 15) << (i % 64 / 32 * 4));
}

void quantize_q5_k(const float* x, const float* importance, uint8_t* out) {
  std::memset(out, 0, 176);
  const Ranges<8> ranges(x, importance,
                         {.most = 31, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute = false}, 63, out);
  store_six_bits(out + 4, ranges);
  for (int i = 0; i < 256; ++i) {
    const int code = ranges.code(x, i, 31);
    out[48 + i / 64 * 32 + i % 32] |= static_cast<uint8_t>((code & 0xf) << (i % 64 / 32 * 4));
    out[16 + i % 32] |= static_cast<uint8_t>((code >> 4) << (i / 32));
  }
}

void quantize_q6_k(const float* x, const float* importance, uint8_t* out) {
  std::memset(out, 0, 210);
  const SignedScales scales(x, importance, 32, 128, out + 208);
  for (int g = 0; g < 16; ++g) out[192 + g] = static_cast<uint8_t>(static_cast<int8_t>(scales.scales[g]));
  for (int i = 0; i < 256; ++i) {
    const int code = scales.code(x, i, 32);
    out[i / 128 * 64 + i % 64] |= static_cast<uint8_t>((code & 0xf) << (i % 128 / 64 * 4));
    out[128 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>((code >> 4) << (i % 128 / 32 * 2));
  }
}

}  // namespace sluice
