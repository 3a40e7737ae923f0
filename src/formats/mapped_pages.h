// The memory that mapped tensors take.
#pragma once

#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace sluice::formats {

// Lets the system take back the whole pages of a tensor of the store, or of a part of one. A later read brings them in again.
// Views of other memory are left alone.
void release_pages(const TensorStore& store, const TensorView& view);
// The same of all its files.
void release_pages(const TensorStore& store);

}  // namespace sluice::formats
