// What the kernels of key weights take.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

struct KeyWeightParams {
  CacheView keys;
  const int32_t* blocks;
  const float* queries;  // [rows, heads, dim]
  float* scores;         // [rows * heads, tokens]
  float* largest;        // [rows, tokens]
  int32_t block_size, rows, heads, kv_heads, tokens;
  float scale, softcap;
};
void launch_key_weights(const KeyWeightParams&, Stream);

}  // namespace sluice::kernels::cuda
