// Weights that Hugging Face folders keep as two tensors, values and their scales, as one tensor of our own.
#pragma once

#include "base/result.h"
#include "tensor/tensor.h"

namespace sluice::models {

// blocks U8 [rows, groups, 16] (two elements a byte, the first in the low half) and scales U8 [rows, groups] as
// MXFP4 [rows, 32 * groups]. With `split_pairs` the even rows come first, then the odd ones.
Result<HostTensor> pack_mxfp4(TensorView blocks, TensorView scales, bool split_pairs);

// values F8_E4M3 [rows, cols] times their scales (F32, BF16, or the exponents of powers of two as U8), as F16 (F32 where that is
// too narrow): one scale for all, one per row, or one per tile of equal size, such as 128 x 128. `group`: the columns of a row
// that must share one; 0: not said.
Result<HostTensor> unpack_f8(TensorView values, TensorView scales, int group = 0);

}  // namespace sluice::models
