// The meaning of every weight type: one row of stored bytes to f32, bit for bit what the `gguf` package's
// dequantize gives. Plain loops; the fast kernels are held to it.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

// REQUIRES: `type` is a weight type (not I8, I32, U8); `elements` is a multiple of its block size.
// `source` needs no alignment.
void dequantize_row(DType type, const void* source, float* out, int64_t elements);

}  // namespace sluice
