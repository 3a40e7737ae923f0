// The largest weight that heads give the tokens of a prompt, beside attention itself.
#pragma once

#include "kernels/cuda/attention/attention_params.h"
#include "kernels/cuda/step/step_context.h"
#include "kernels/key_weights.h"

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

class KeyWeightDispatch {
 public:
  // The context outlives this.
  explicit KeyWeightDispatch(StepContext& step) : step_(step) {}

  bool weigh(std::span<float> largest, std::span<const KeyWeightLayer> layers, int rows, int tokens);

 private:
  StepContext& step_;
  Scratch memory_;
};

}  // namespace sluice::kernels::cuda
