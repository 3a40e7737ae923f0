// The largest weight that heads give the tokens of a prompt, beside attention itself.
#pragma once

#include "kernels/cuda/key_weights/key_weights_params.h"
#include "kernels/cuda/step/step_context.h"
#include "kernels/key_weights.h"

namespace sluice::kernels::cuda {

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
