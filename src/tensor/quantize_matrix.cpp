#include "tensor/quantize_matrix.h"

#include <algorithm>
#include <cmath>

#include "tensor/half.h"
#include "tensor/quantize_search.h"

namespace sluice {

namespace {

constexpr int kRangeSteps = 20;       // candidates: the whole range, and so many smaller ones
constexpr float kRangeStep = 0.025f;  // of the whole

float largest_of(const float* row, int64_t cols) {
  float largest = 0.0f;
  for (int64_t i = 0; i < cols; ++i) largest = std::max(largest, std::abs(row[i]));
  return largest;
}

uint16_t scale_bits(float scale, DType type) {
  return type == DType::BF16 ? f32_to_bf16(scale) : f32_to_f16(scale);
}

float scale_value(uint16_t bits, DType type) {
  return type == DType::BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

int code_of(float x, float inverse, int zero) {
  return std::clamp(nearest_integer(x * inverse) + zero, 0, 15);
}

// The scale and zero point that cover a share of the range.
FourBitGroup covering(float low, float high, float share, const FourBits& how) {
  if (how.symmetric) return {scale_bits(share * std::max(-low, high) / 7.0f, how.scale_type), 8};
  FourBitGroup out{scale_bits(share * (high - low) / 15.0f, how.scale_type), 0};
  const float scale = scale_value(out.scale, how.scale_type);
  if (scale > 0.0f) out.zero = static_cast<uint8_t>(std::clamp(nearest_integer(-share * low / scale), 0, 15));
  return out;
}

double error_with(const FourBitGroup& group, const float* x, int64_t count, const FourBits& how) {
  const float scale = scale_value(group.scale, how.scale_type), inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float error = scale * static_cast<float>(code_of(x[i], inverse, group.zero) - group.zero) - x[i];
    sum += static_cast<double>(error * error * (how.importance == nullptr ? 1.0f : how.importance[i]));
  }
  return sum;
}

}  // namespace

float quantize_row_e4m3(const float* row, uint8_t* out, int64_t cols) {
  const float scale = std::max(largest_of(row, cols) / 448.0f, 1e-12f);
  for (int64_t i = 0; i < cols; ++i) out[i] = f32_to_e4m3(row[i] / scale);
  return scale;
}

float quantize_row_int8(const float* row, uint8_t* out, int64_t cols) {
  const float scale = std::max(largest_of(row, cols) / 127.0f, 1e-12f);
  for (int64_t i = 0; i < cols; ++i)
    out[i] =
        static_cast<uint8_t>(static_cast<int8_t>(std::clamp(nearest_integer(row[i] / scale), -127, 127)));
  return scale;
}

FourBitGroup quantize_four_bits(const float* x, int64_t count, const FourBits& how, uint8_t* codes) {
  const float low = std::min(0.0f, *std::min_element(x, x + count)),
              high = std::max(0.0f, *std::max_element(x, x + count));
  FourBitGroup best = covering(low, high, 1.0f, how);
  double least = error_with(best, x, count, how);
  for (int step = 1; step <= kRangeSteps; ++step) {
    const FourBitGroup found = covering(low, high, 1.0f - kRangeStep * static_cast<float>(step), how);
    const double error = error_with(found, x, count, how);
    if (error >= least) continue;
    least = error;
    best = found;
  }
  const float scale = scale_value(best.scale, how.scale_type), inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(code_of(x[i], inverse, best.zero));
  return best;
}

}  // namespace sluice
