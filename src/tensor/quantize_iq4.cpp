// IQ4_NL and IQ4_XS: four bits that index a table of values lying closer near zero.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/quantize.h"
#include "tensor/quantize_search.h"

namespace sluice {

namespace {

constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

int nearest_nonlinear(float value) {
  const auto* above = std::lower_bound(kNonlinear, kNonlinear + 16, value,
                                       [](int8_t a, float b) { return static_cast<float>(a) < b; });
  if (above == kNonlinear) return 0;
  if (above == kNonlinear + 16) return 15;
  const bool lower = value - static_cast<float>(above[-1]) < static_cast<float>(above[0]) - value;
  return static_cast<int>(above - kNonlinear) - (lower ? 1 : 0);
}

// Of 32 elements, among scales around the one that brings the extreme to the end of the table. Errors weigh by the square of
// the element where columns have no importance.
float search_nonlinear_scale(const float* x, const float* importance, float spread) {
  float weights[32];
  if (importance != nullptr) {
    weigh_by_importance(x, importance, 32, spread, weights);
  } else {
    for (int i = 0; i < 32; ++i) weights[i] = x[i] * x[i];
  }
  const float most = extreme_of(x, 32);
  float best_scale = 0.0f, best_fit = 0.0f;
  for (int step = -7; step <= 7 && most != 0.0f; ++step) {
    const float inverse = (static_cast<float>(step) + static_cast<float>(kNonlinear[0])) / most;
    float along = 0.0f, square = 0.0f;
    for (int i = 0; i < 32; ++i) {
      const auto value = static_cast<float>(kNonlinear[nearest_nonlinear(inverse * x[i])]);
      along += weights[i] * value * x[i];
      square += weights[i] * value * value;
    }
    if (square <= 0.0f || along * along <= best_fit * square) continue;
    best_fit = along * along / square;
    best_scale = along / square;
  }
  return best_scale;
}

void store_nonlinear(const float* x, float scale, uint8_t* to) {
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (int i = 0; i < 16; ++i)
    to[i] =
        static_cast<uint8_t>(nearest_nonlinear(inverse * x[i]) | nearest_nonlinear(inverse * x[i + 16]) << 4);
}

}  // namespace

void quantize_iq4_nl(const float* x, const float* importance, uint8_t* out) {
  const float scale = search_nonlinear_scale(x, importance, 2.0f * mean_square(x, 32));
  store_nonlinear(x, stored_half(out, scale), out + 2);
}

void quantize_iq4_xs(const float* x, const float* importance, uint8_t* out) {
  std::memset(out, 0, 136);
  const float spread = 2.0f * mean_square(x, 256);
  float found[8];
  for (int g = 0; g < 8; ++g)
    found[g] =
        search_nonlinear_scale(x + 32 * g, importance == nullptr ? nullptr : importance + 32 * g, spread);
  const float d = stored_half(out, extreme_of(found, 8) / -32.0f), inverse = d == 0.0f ? 0.0f : 1.0f / d;
  uint16_t high = 0;
  for (int g = 0; g < 8; ++g) {
    const int scale = std::clamp(nearest_integer(inverse * found[g]), -32, 31), stored = scale + 32;
    store_nonlinear(x + 32 * g, d * static_cast<float>(scale), out + 8 + 16 * g);
    out[4 + g / 2] = static_cast<uint8_t>(out[4 + g / 2] | (stored & 0xf) << (g % 2 * 4));
    high = static_cast<uint16_t>(high | (stored >> 4) << (2 * g));
  }
  std::memcpy(out + 2, &high, 2);
}

}  // namespace sluice
