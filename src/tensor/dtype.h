// Element types, the quantised block types among them. Sizes are those of the files: a row of `n` elements
// takes n / block_elements * block_bytes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice {

// clang-format off
enum class DType : uint8_t {
  F32, F16, BF16, F8_E4M3,
  I8, I32, U8,  // bookkeeping and KV caches, never a weight of a matmul
  Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
  Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
  IQ4_NL, MXFP4,
  Q4_Z, F4_16, NF4, FP4, G4_NL, G4_2, G4_3X, G4_3S,  // of our own, made at load (tensor/repack.h)
  IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_XS, TQ1_0, TQ2_0, NVFP4,  // of files only: repacked at load
};
// clang-format on

struct DTypeInfo {
  DType type;
  std::string_view name;
  int block_elements;  // 1 for plain types
  int block_bytes;
};

// clang-format off
inline constexpr std::array<DTypeInfo, 38> kDTypes{{
    {DType::F32, "F32", 1, 4},
    {DType::F16, "F16", 1, 2},
    {DType::BF16, "BF16", 1, 2},
    {DType::F8_E4M3, "F8_E4M3", 1, 1},
    {DType::I8, "I8", 1, 1},
    {DType::I32, "I32", 1, 4},
    {DType::U8, "U8", 1, 1},
    {DType::Q4_0, "Q4_0", 32, 18},
    {DType::Q4_1, "Q4_1", 32, 20},
    {DType::Q5_0, "Q5_0", 32, 22},
    {DType::Q5_1, "Q5_1", 32, 24},
    {DType::Q8_0, "Q8_0", 32, 34},
    {DType::Q2_K, "Q2_K", 256, 84},
    {DType::Q3_K, "Q3_K", 256, 110},
    {DType::Q4_K, "Q4_K", 256, 144},
    {DType::Q5_K, "Q5_K", 256, 176},
    {DType::Q6_K, "Q6_K", 256, 210},
    {DType::IQ4_NL, "IQ4_NL", 32, 18},
    {DType::MXFP4, "MXFP4", 32, 17},
    {DType::Q4_Z, "Q4_Z", 32, 20},
    {DType::F4_16, "F4_16", 32, 20},
    {DType::NF4, "NF4", 32, 18},
    {DType::FP4, "FP4", 32, 18},
    {DType::G4_NL, "G4_NL", 256, 146},
    {DType::G4_2, "G4_2", 256, 146},
    {DType::G4_3X, "G4_3X", 256, 146},
    {DType::G4_3S, "G4_3S", 256, 146},
    {DType::IQ1_S, "IQ1_S", 256, 50},
    {DType::IQ1_M, "IQ1_M", 256, 56},
    {DType::IQ2_XXS, "IQ2_XXS", 256, 66},
    {DType::IQ2_XS, "IQ2_XS", 256, 74},
    {DType::IQ2_S, "IQ2_S", 256, 82},
    {DType::IQ3_XXS, "IQ3_XXS", 256, 98},
    {DType::IQ3_S, "IQ3_S", 256, 110},
    {DType::IQ4_XS, "IQ4_XS", 256, 136},
    {DType::TQ1_0, "TQ1_0", 256, 54},
    {DType::TQ2_0, "TQ2_0", 256, 66},
    {DType::NVFP4, "NVFP4", 64, 36},
}};
// clang-format on

constexpr const DTypeInfo& info(DType type) {
  return kDTypes[static_cast<size_t>(type)];
}
constexpr std::string_view name(DType type) {
  return info(type).name;
}
constexpr bool is_block(DType type) {
  return info(type).block_elements > 1;
}

// The type that kernels read in the place of one that only files have; the type itself otherwise.
constexpr DType kernel_type(DType type) {
  switch (type) {
    case DType::IQ4_XS:
      return DType::G4_NL;
    case DType::IQ1_S:
    case DType::IQ1_M:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::TQ1_0:
    case DType::TQ2_0:
      return DType::G4_2;
    case DType::IQ3_XXS:
      return DType::G4_3X;
    case DType::IQ3_S:
      return DType::G4_3S;
    case DType::NVFP4:
      return DType::F4_16;
    default:
      return type;
  }
}
constexpr bool is_file_only(DType type) {
  return kernel_type(type) != type;
}

// REQUIRES: elements is a multiple of the block size.
constexpr int64_t row_bytes(DType type, int64_t elements) {
  return elements / info(type).block_elements * info(type).block_bytes;
}

static_assert(
    [] {
      for (size_t i = 0; i < kDTypes.size(); ++i)
        if (static_cast<size_t>(kDTypes[i].type) != i) return false;
      return true;
    }(),
    "kDTypes is indexed by DType");

}  // namespace sluice
