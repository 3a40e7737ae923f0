// Weights that Hugging Face folders keep as two tensors, values and their scales, as one tensor of our own.
#pragma once

#include "base/result.h"
#include "models/quantized/quantization.h"
#include "tensor/tensor.h"

namespace sluice::models {

// blocks U8 [rows, groups, 16] (two elements a byte, the first in the low half) and scales U8 [rows, groups] as
// MXFP4 [rows, 32 * groups]. With `split_pairs` the even rows come first, then the odd ones.
Result<HostTensor> pack_mxfp4(TensorView blocks, TensorView scales, bool split_pairs);

// values F8_E4M3 [rows, cols] times their scales (floats, or the exponents of powers of two as U8), as F16 (F32 where that is too
// narrow): one scale for all, one per row, or one per tile, [tiles down, tiles across] or with dimensions of 1 between them.
// Without a `tile` that says the size, tiles are 128 x 128 or of equal size.
Result<HostTensor> unpack_f8(TensorView values, TensorView scales, const ScaleTile& tile = {});

// Error: one of the exponents (U8) is 255, which is no power of two.
Status check_exponents(TensorView exponents);

}  // namespace sluice::models
