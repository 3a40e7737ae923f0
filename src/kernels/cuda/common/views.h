// Tensors of the host layers as kernels take them.
#pragma once

#include "kernels/cuda/common/params.h"
#include "tensor/tensor.h"

namespace sluice::kernels::cuda {

// Rank 2 [n, dim] or rank 3 [n, heads, dim].
View view_of(const TensorView& view);
// A contiguous view of the same shape.
View packed(View like, DType type, void* data);
// [n, dim]
View contiguous(void* data, DType type, int64_t n, int64_t dim);
// Where a view starts that leaves out the first columns.
void* offset_columns(const View& view, int64_t columns);
// An f32 vector of so many elements; null where there is none.
const float* floats_of(const TensorView& view, int64_t count);

}  // namespace sluice::kernels::cuda
