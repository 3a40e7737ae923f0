// The tensor types of GGUF by their number in the file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice::formats {

struct GgmlType {
  uint32_t id;
  std::string_view name;
  int64_t block_elements;
  int64_t block_bytes;
  std::optional<DType> dtype;  // std::nullopt: known, but no kernel reads it
};

constexpr GgmlType usable(uint32_t id, DType type) {
  return {id, info(type).name, info(type).block_elements, info(type).block_bytes, type};
}

// Numbers that are not here were never given out, or were taken back.
inline constexpr std::array<GgmlType, 34> kGgmlTypes{{
    usable(0, DType::F32),           usable(1, DType::F16),
    usable(2, DType::Q4_0),          usable(3, DType::Q4_1),
    usable(6, DType::Q5_0),          usable(7, DType::Q5_1),
    usable(8, DType::Q8_0),          {9, "Q8_1", 32, 36, std::nullopt},
    usable(10, DType::Q2_K),         usable(11, DType::Q3_K),
    usable(12, DType::Q4_K),         usable(13, DType::Q5_K),
    usable(14, DType::Q6_K),         {15, "Q8_K", 256, 292, std::nullopt},
    usable(16, DType::IQ2_XXS),      usable(17, DType::IQ2_XS),
    usable(18, DType::IQ3_XXS),      usable(19, DType::IQ1_S),
    usable(20, DType::IQ4_NL),       usable(21, DType::IQ3_S),
    usable(22, DType::IQ2_S),        usable(23, DType::IQ4_XS),
    usable(24, DType::I8),           {25, "I16", 1, 2, std::nullopt},
    usable(26, DType::I32),          {27, "I64", 1, 8, std::nullopt},
    {28, "F64", 1, 8, std::nullopt}, usable(29, DType::IQ1_M),
    usable(30, DType::BF16),         usable(34, DType::TQ1_0),
    usable(35, DType::TQ2_0),        usable(39, DType::MXFP4),
    usable(40, DType::NVFP4),        {41, "Q1_0", 128, 18, std::nullopt},
}};

constexpr const GgmlType* find_ggml_type(uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

static_assert(
    [] {
      for (const GgmlType& type : kGgmlTypes)
        if (type.block_elements <= 0 || type.block_bytes <= 0) return false;
      return true;
    }(),
    "sizes are divided by");

}  // namespace sluice::formats
