// Rows and groups as folders of safetensors keep them.
#include "tensor/quantize_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace sluice {
namespace {

std::vector<float> normal_values(size_t count) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

double group_error(const std::vector<float>& x, const std::vector<float>& importance, const FourBits& how) {
  std::vector<uint8_t> codes(x.size());
  const FourBitGroup made = quantize_four_bits(x.data(), static_cast<int64_t>(x.size()), how, codes.data());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(codes[i], 15);
    const float value = f16_to_f32(made.scale) * static_cast<float>(codes[i] - made.zero);
    sum += static_cast<double>(importance[i]) * std::pow(static_cast<double>(value - x[i]), 2);
  }
  return sum;
}

TEST(QuantizeFourBits, ErrorsThatCountAreSmallerWithImportance) {
  const std::vector<float> x = normal_values(128);
  std::vector<float> importance(x.size());
  for (size_t i = 0; i < x.size(); ++i) importance[i] = std::abs(x[i]) < 0.04f ? 10.0f : 0.01f;
  for (const bool symmetric : {true, false}) {
    const double plain = group_error(x, importance, {.symmetric = symmetric});
    const double weighed =
        group_error(x, importance, {.symmetric = symmetric, .importance = importance.data()});
    EXPECT_LT(weighed, 0.8 * plain) << symmetric;
  }
}

TEST(QuantizeFourBits, ZerosStayZero) {
  const std::vector<float> x(32, 0.0f), importance(32, 1.0f);
  EXPECT_EQ(group_error(x, importance, {.symmetric = true}), 0.0);
  EXPECT_EQ(group_error(x, importance, {.symmetric = false}), 0.0);
}

TEST(QuantizeRowOfMatrix, StaysWithinHalfAStep) {
  const std::vector<float> x = normal_values(200);
  std::vector<uint8_t> bytes(x.size());
  const float scale = quantize_row_int8(x.data(), bytes.data(), 200);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(scale * static_cast<float>(static_cast<int8_t>(bytes[i])), x[i], 0.501f * scale);
  const float fp8 = quantize_row_e4m3(x.data(), bytes.data(), 200);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(fp8 * e4m3_to_f32(bytes[i]), x[i], 0.0626f * std::abs(x[i]) + 0.002f * fp8);
}

}  // namespace
}  // namespace sluice
