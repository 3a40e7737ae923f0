// Turning stored tensors into what the decoder expects, by copying them into memory of our own.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "models/loading/names.h"
#include "tensor/tensor.h"

namespace sluice::models {

// How the rows of a fused qkv matrix are grouped (Fold::GroupedQkv). Of linear attention: heads are those of the values,
// kv_heads those of the keys.
struct QkvShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
};

// A matrix [rows, cols] of any type under a fold; the result is contiguous and owns its memory. Folds that
// move single elements need a plain type.
Result<HostTensor> fold_matrix(TensorView stored, Fold fold, const QkvShape& shape);

// A vector decoded to f32 under the same fold.
std::vector<float> fold_vector(TensorView stored, Fold fold, const QkvShape& shape);

// [rows, cols] decoded to f32 and transposed: [cols, rows].
HostTensor dequantize_transposed(TensorView matrix);

}  // namespace sluice::models
