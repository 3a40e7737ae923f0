// The types of files whose values come from code books, brought to one form: integer values with an integer scale for each
// 16 of them. Kernels read that form as the G4 types: nibbles that index a table of 16 values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

// 256 elements: d * grid_factor(kernel_type) * scales[i / 16] * values[i].
struct GridBlock {
  uint16_t d = 0;  // f16
  int8_t scales[16];
  int8_t values[256];
};

// REQUIRES: `type` is one of IQ1_S to TQ2_0 in DType.
void expand_grid(DType type, const uint8_t* block, GridBlock& out);

// The values that the nibbles of a G4 type stand for.
constexpr std::array<int8_t, 16> grid_table(DType type) {
  switch (type) {
    case DType::G4_2:
      return {-43, -25, -9, -8, -7, -1, 0, 1, 7, 8, 9, 25, 43, 0, 0, 0};
    case DType::G4_3X:
      return {-62, -52, -44, -36, -28, -20, -12, -4, 4, 12, 20, 28, 36, 44, 52, 62};
    case DType::G4_3S:
      return {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};
    default:
      return {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  }
}

constexpr int8_t grid_value(DType type, int code) {
  return grid_table(type)[static_cast<size_t>(code)];
}

// A factor on every scale of the type is 1 / (1 << grid_shift).
constexpr int grid_shift(DType type) {
  return type == DType::G4_2 ? 3 : type == DType::G4_3X ? 2 : 0;
}
constexpr float grid_factor(DType type) {
  return 1.0f / static_cast<float>(1 << grid_shift(type));
}

}  // namespace sluice
