// Norms over rows of which each rank of a tensor-parallel group has some of the columns.
#pragma once

#include <span>

#include "models/layers/layers.h"

namespace sluice::models {

// Columns of this rank, normed in place.
struct SplitNorm {
  TensorView x;       // [n, width]
  TensorView gain;    // of these columns; may be empty
  int64_t row_width;  // columns of all ranks
  int row =
      0;  // which of the rows that a token has, of those whose squares are summed together, these are of
  bool counts = true;  // false: another rank has the same columns, and counts them
};

// RMSNorm of `rows` rows of every token. All ranks of the group call it, each with its own columns; what rows they share is
// summed once, in the order of ranks. REQUIRES: context.tensor_group, and a back-end that is a kernels::PartSums.
void run_split_norms(const LayerContext& context, std::span<const SplitNorm> norms, int rows, float eps);

// The model's norm, of columns that the ranks of the group share equally where there is one; in place.
void run_norm_of_columns(const LayerContext& context, TensorView x, const Norm& norm);

}  // namespace sluice::models
