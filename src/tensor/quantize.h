// f32 to the block types of GGUF. Types that the `gguf` package can make come out as it makes them, bit for bit: Q4_0, Q4_1, Q5_0,
// Q5_1, Q8_0, BF16, TQ1_0, TQ2_0, MXFP4. The others search for the scales of least squared error, and so do all but Q8_0, MXFP4
// and those of ternary numbers where columns have an importance.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

bool can_quantize(DType type);

// REQUIRES: can_quantize(type); `elements` is a multiple of its block size. Values are finite. `importance` [elements], or null:
// how much the squared error of each element counts, positive.
void quantize_row(DType type, const float* row, uint8_t* out, int64_t elements,
                  const float* importance = nullptr);

// Of 256 elements each; importance is null or as above.
void quantize_q2_k(const float* x, const float* importance, uint8_t* out);
void quantize_q3_k(const float* x, const float* importance, uint8_t* out);
void quantize_q4_k(const float* x, const float* importance, uint8_t* out);
void quantize_q5_k(const float* x, const float* importance, uint8_t* out);
void quantize_q6_k(const float* x, const float* importance, uint8_t* out);
void quantize_iq4_xs(const float* x, const float* importance, uint8_t* out);
// Of 32 elements.
void quantize_iq4_nl(const float* x, const float* importance, uint8_t* out);

}  // namespace sluice
