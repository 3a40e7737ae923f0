// f32 to the block types of GGUF. Types that the `gguf` package can make come out as it makes them, bit for bit: Q4_0, Q4_1, Q5_0,
// Q5_1, Q8_0, BF16, TQ1_0, TQ2_0. The others search for the scales of least squared error.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

bool can_quantize(DType type);

// REQUIRES: can_quantize(type); `elements` is a multiple of its block size. Values are finite.
void quantize_row(DType type, const float* row, uint8_t* out, int64_t elements);

// Of 256 elements each.
void quantize_q2_k(const float* x, uint8_t* out);
void quantize_q3_k(const float* x, uint8_t* out);
void quantize_q4_k(const float* x, uint8_t* out);
void quantize_q5_k(const float* x, uint8_t* out);
void quantize_q6_k(const float* x, uint8_t* out);

}  // namespace sluice
