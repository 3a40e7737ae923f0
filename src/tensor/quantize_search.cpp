#include "tensor/quantize_search.h"

#include <algorithm>
#include <cmath>

namespace sluice {

namespace {

float deviation(float difference, bool absolute) {
  return absolute ? std::abs(difference) : difference * difference;
}

}  // namespace

int nearest_integer(float value) {
  return static_cast<int>(std::nearbyint(value));
}

float extreme_of(const float* values, int count) {
  float found = 0.0f;
  for (int i = 0; i < count; ++i)
    if (std::abs(values[i]) > std::abs(found)) found = values[i];
  return found;
}

void weigh_by_importance(const float* x, const float* importance, int count, float spread, float* weights) {
  for (int i = 0; i < count; ++i) weights[i] = importance[i] * std::sqrt(spread + x[i] * x[i]);
}

float mean_square(const float* x, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(count);
}

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
    return static_cast<float>(std::clamp(nearest_integer(inverse * (x[i] - low)), 0, search.most));
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

float search_scale(const float* x, const float* weights, int count, int half) {
  const float most = extreme_of(x, count);
  if (std::abs(most) < 1e-15f) return 0.0f;
  float best_scale = 0.0f, best_fit = 0.0f;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(static_cast<float>(half) + 0.1f * static_cast<float>(step)) / most;
    float along = 0.0f, square = 0.0f;
    for (int i = 0; i < count; ++i) {
      const auto l = static_cast<float>(std::clamp(nearest_integer(inverse * x[i]), -half, half - 1));
      along += weights[i] * x[i] * l;
      square += weights[i] * l * l;
    }
    if (square <= 0.0f || along * along <= best_fit * square) continue;
    best_fit = along * along / square;
    best_scale = along / square;
  }
  return best_scale;
}

float search_unsigned_scale(const float* values, const float* weights, int count, int most) {
  const float largest = *std::max_element(values, values + count);
  if (largest < 1e-15f) return 0.0f;
  float best_scale = largest / static_cast<float>(most), best_fit = 0.0f;
  for (int step = -4; step <= 4; ++step) {
    const float inverse = (static_cast<float>(most) + 0.1f * static_cast<float>(step)) / largest;
    float along = 0.0f, square = 0.0f;
    for (int i = 0; i < count; ++i) {
      const auto l = static_cast<float>(std::clamp(nearest_integer(inverse * values[i]), 0, most));
      along += weights[i] * values[i] * l;
      square += weights[i] * l * l;
    }
    if (square <= 0.0f || along * along <= best_fit * square) continue;
    best_fit = along * along / square;
    best_scale = along / square;
  }
  return best_scale;
}

}  // namespace sluice
