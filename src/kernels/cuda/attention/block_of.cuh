// Where a token of the step lies in the KV cache.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

__device__ __forceinline__ int64_t block_of(const TableView& t, int64_t token, int64_t& slot) {
  const int32_t position = t.positions[token];
  slot = position % t.block_size;
  return t.blocks[t.row_begin[t.sequence[token]] + position / t.block_size];
}

}  // namespace sluice::kernels::cuda
