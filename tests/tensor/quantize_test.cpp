// Blocks made of floats: as the `gguf` package makes them, and near to the floats.
#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tensor/blocks.h"

namespace sluice {
namespace {

constexpr size_t kFloats = 2048;

struct QuantizeCases {
  std::vector<float> values = std::vector<float>(kFloats);
  std::map<std::string, std::vector<uint8_t>> blocks;

  QuantizeCases() {
    std::ifstream file(SLUICE_TEST_DATA "/quantize_cases.bin", std::ios::binary);
    file.read(reinterpret_cast<char*>(values.data()), kFloats * 4);
    char text[8];
    while (file.read(text, sizeof text)) {
      uint32_t bytes = 0;
      file.read(reinterpret_cast<char*>(&bytes), 4);
      std::vector<uint8_t>& data = blocks[std::string(text, strnlen(text, sizeof text))];
      data.resize(bytes);
      file.read(reinterpret_cast<char*>(data.data()), bytes);
    }
  }
};

TEST(QuantizeRow, EqualsGgufBitForBit) {
  const QuantizeCases cases;
  EXPECT_EQ(cases.blocks.size(), 10u);
  for (const auto& [text, expected] : cases.blocks) {
    for (const DTypeInfo& type : kDTypes) {
      if (type.name != text) continue;
      ASSERT_TRUE(can_quantize(type.type)) << text;
      std::vector<uint8_t> made(expected.size());
      quantize_row(type.type, cases.values.data(), made.data(), kFloats);
      for (size_t i = 0; i < made.size(); ++i)
        ASSERT_EQ(made[i], expected[i])
            << text << " byte " << i << " of block " << i / static_cast<size_t>(type.block_bytes);
    }
  }
}

// Root of the mean squared error, as a share of that of the values.
double error_of(DType type, const float* values, int64_t count) {
  std::vector<uint8_t> made(static_cast<size_t>(row_bytes(type, count)));
  std::vector<float> back(static_cast<size_t>(count));
  quantize_row(type, values, made.data(), count);
  dequantize_row(type, made.data(), back.data(), count);
  double difference = 0, size = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double d = static_cast<double>(back[static_cast<size_t>(i)]) - static_cast<double>(values[i]);
    difference += d * d;
    size += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return std::sqrt(difference / size);
}

TEST(QuantizeRow, StaysNearTheValues) {
  const QuantizeCases cases;
  const float* values = cases.values.data() + 1024;  // normal ones
  EXPECT_LT(error_of(DType::Q2_K, values, 1024), 0.32);
  EXPECT_LT(error_of(DType::Q3_K, values, 1024), 0.20);
  EXPECT_LT(error_of(DType::Q4_K, values, 1024), 0.085);
  EXPECT_LT(error_of(DType::Q5_K, values, 1024), 0.045);
  EXPECT_LT(error_of(DType::Q6_K, values, 1024), 0.025);
  EXPECT_LT(error_of(DType::IQ4_NL, values, 1024), 0.085);
  EXPECT_LT(error_of(DType::IQ4_XS, values, 1024), 0.085);
}

// The squared error that counts, of blocks made with or without the importance.
double weighted_error(DType type, const std::vector<float>& values, const std::vector<float>& importance,
                      bool known) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint8_t> made(static_cast<size_t>(row_bytes(type, count)));
  std::vector<float> back(values.size());
  quantize_row(type, values.data(), made.data(), count, known ? importance.data() : nullptr);
  dequantize_row(type, made.data(), back.data(), count);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double d = static_cast<double>(back[i]) - static_cast<double>(values[i]);
    sum += static_cast<double>(importance[i]) * d * d;
  }
  return sum;
}

TEST(QuantizeRow, ErrorsThatCountAreSmallerWithImportance) {
  const QuantizeCases cases;
  const std::vector<float> values(cases.values.begin() + 1024, cases.values.end());
  std::vector<float> importance(values.size());
  for (size_t i = 0; i < values.size(); ++i) importance[i] = i % 7 == 0 ? 20.0f : 0.05f;
  for (const DType type : {DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q2_K, DType::Q3_K,
                           DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL, DType::IQ4_XS})
    EXPECT_LT(weighted_error(type, values, importance, true),
              0.85 * weighted_error(type, values, importance, false))
        << name(type);
}

TEST(QuantizeRow, TypesWithoutScalesToChooseIgnoreImportance) {
  const QuantizeCases cases;
  const std::vector<float> importance(kFloats, 3.0f);
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0, DType::MXFP4, DType::TQ1_0, DType::TQ2_0}) {
    std::vector<uint8_t> plain(static_cast<size_t>(row_bytes(type, kFloats))), weighed(plain.size());
    quantize_row(type, cases.values.data(), plain.data(), kFloats);
    quantize_row(type, cases.values.data(), weighed.data(), kFloats, importance.data());
    EXPECT_EQ(plain, weighed) << name(type);
  }
}

TEST(QuantizeRow, MakesZerosOfZeros) {
  const std::vector<float> zeros(256, 0.0f);
  for (const DTypeInfo& type : kDTypes) {
    if (!can_quantize(type.type) || !is_block(type.type)) continue;
    std::vector<uint8_t> made(static_cast<size_t>(row_bytes(type.type, 256)), 0xff);
    std::vector<float> back(256, 1.0f);
    quantize_row(type.type, zeros.data(), made.data(), 256);
    dequantize_row(type.type, made.data(), back.data(), 256);
    for (const float value : back) ASSERT_EQ(value, 0.0f) << type.name;
  }
}

}  // namespace
}  // namespace sluice
