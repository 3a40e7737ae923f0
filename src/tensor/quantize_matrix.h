// Matrices quantised as folders of safetensors keep them: codes apart from their scales.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

// A row in F8_E4M3 or I8 whose largest value becomes 448 or 127; the scale.
float quantize_row_e4m3(const float* row, uint8_t* out, int64_t cols);
float quantize_row_int8(const float* row, uint8_t* out, int64_t cols);

struct FourBits {
  bool symmetric = true;              // value = scale * (code - 8); else the zero point is the group's own
  DType scale_type = DType::F16;      // F16 or BF16
  const float* importance = nullptr;  // of each element, or null
};
struct FourBitGroup {
  uint16_t scale = 0;  // bits of the scale's type
  uint8_t zero = 8;
};

// Codes 0 to 15 of `count` elements that share a scale, of least squared error among ranges cut off at either end.
FourBitGroup quantize_four_bits(const float* x, int64_t count, const FourBits& how, uint8_t* codes);

}  // namespace sluice
