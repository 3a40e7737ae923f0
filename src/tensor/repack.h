// Types that only files have, as the types of the same values that kernels read.
#pragma once

#include "tensor/tensor.h"

namespace sluice {

// A contiguous matrix [rows, cols] as kernel_type(matrix.dtype), every value times `factor`. The values are the same to the bit
// but for NVFP4, whose scales are rounded once to f16.
// REQUIRES: is_file_only(matrix.dtype); factor is 1 for every type but NVFP4.
HostTensor repack_for_kernels(TensorView matrix, float factor = 1.0f);

}  // namespace sluice
