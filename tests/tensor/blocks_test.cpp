// dequantize_row against the floats that the gguf package gives for the same bytes (tools/make_block_cases.py).
#include "tensor/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tensor/repack.h"

namespace sluice {
namespace {

struct Case {
  std::string name;
  std::vector<char> stored;
  std::vector<float> values;
};

std::vector<Case> read_cases() {
  std::ifstream file(SLUICE_TEST_DATA "/block_cases.bin", std::ios::binary);
  std::vector<Case> cases;
  char name[8];
  while (file.read(name, sizeof name)) {
    uint32_t sizes[2];
    file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
    Case one{std::string(name, strnlen(name, sizeof name)), std::vector<char>(sizes[1]),
             std::vector<float>(sizes[0])};
    file.read(one.stored.data(), sizes[1]);
    file.read(reinterpret_cast<char*>(one.values.data()), int64_t{sizes[0]} * 4);
    EXPECT_TRUE(file.good());
    cases.push_back(std::move(one));
  }
  return cases;
}

std::optional<DType> type_of(const std::string& text) {
  for (const DTypeInfo& type : kDTypes) {
    if (type.name == text) return type.type;
  }
  return std::nullopt;
}

// The same bits, or both NaN: the sign and payload of a NaN made by 0 * inf belong to the machine.
bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(DecodeRow, EqualsGgufBitForBit) {
  const std::vector<Case> cases = read_cases();
  EXPECT_EQ(cases.size(), 26u);
  for (const Case& one : cases) {
    const std::optional<DType> type = type_of(one.name);
    ASSERT_TRUE(type.has_value()) << one.name;
    const auto elements = static_cast<int64_t>(one.values.size());
    ASSERT_EQ(row_bytes(*type, elements), static_cast<int64_t>(one.stored.size())) << one.name;
    std::vector<float> decoded(one.values.size());
    dequantize_row(*type, one.stored.data(), decoded.data(), elements);
    for (size_t i = 0; i < decoded.size(); ++i) {
      ASSERT_TRUE(same(decoded[i], one.values[i]))
          << one.name << " element " << i << ": " << decoded[i] << ", expected " << one.values[i];
    }
  }
}

TEST(DecodeRow, NeedsNoAlignment) {
  const std::vector<Case> cases = read_cases();
  for (const Case& one : cases) {
    const DType type = type_of(one.name).value();
    std::vector<char> shifted(one.stored.size() + 1);
    std::copy(one.stored.begin(), one.stored.end(), shifted.begin() + 1);
    std::vector<float> decoded(one.values.size());
    dequantize_row(type, shifted.data() + 1, decoded.data(), static_cast<int64_t>(decoded.size()));
    for (size_t i = 0; i < decoded.size(); ++i) ASSERT_TRUE(same(decoded[i], one.values[i])) << one.name;
  }
}

TEST(DecodeRow, CopiesF32) {
  const std::vector<float> values{0.0f, -0.0f, 1.5f, 3.4e38f, 1e-45f};
  std::vector<float> decoded(values.size());
  dequantize_row(DType::F32, values.data(), decoded.data(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(decoded, values);
}

// What kernels read in the place of a type of files has the same values; scales of NVFP4 are exact in f16 here.
TEST(RepackForKernels, KeepsEveryValue) {
  int checked = 0;
  for (const Case& one : read_cases()) {
    const std::optional<DType> type = type_of(one.name);
    if (!type || !is_file_only(*type)) continue;
    ++checked;
    const auto elements = static_cast<int64_t>(one.values.size());
    std::vector<char> bytes = one.stored;
    const HostTensor made = repack_for_kernels(TensorView::contiguous(bytes.data(), *type, {1, elements}));
    EXPECT_EQ(made.view.dtype, kernel_type(*type));
    std::vector<float> decoded(one.values.size());
    dequantize_row(made.view.dtype, made.view.data, decoded.data(), elements);
    for (size_t i = 0; i < decoded.size(); ++i)
      ASSERT_TRUE(same(decoded[i], one.values[i])) << one.name << " element " << i << ": " << decoded[i];
  }
  EXPECT_EQ(checked, 11);
}

}  // namespace
}  // namespace sluice
