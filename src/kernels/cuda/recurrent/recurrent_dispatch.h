// The operations of layers that keep a state, as the back-end has them.
#pragma once

#include "kernels/cuda/recurrent/recurrent_params.h"
#include "kernels/cuda/step/step_context.h"
#include "kernels/recurrent.h"

namespace sluice::kernels::cuda {

class RecurrentDispatch {
 public:
  // The step outlives this.
  explicit RecurrentDispatch(StepContext& step) : step_(step) {}

  // A step begins, or is gone through again: the arrays of its sequences are to be sent.
  void begin() {
    sent_ = nullptr;
    settled_ = nullptr;
  }

  void multiply(TensorView out, TensorView a, TensorView b);
  void causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                   const StateBatch& batch);
  void delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                  const StateBatch& batch);
  bool gated_delta(TensorView out, const GatedDeltaInput& input, const GatedDeltaLayer& layer,
                   TensorView states, const StateBatch& batch);
  bool gated_norm(TensorView out, const GatedNorm& input);
  void selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan, TensorView states,
                      const StateBatch& batch);

 private:
  StatesView states_of(const TensorView& states, const StateBatch& batch);
  DeltaParams delta_params(const DeltaInput& input, const DeltaRule& rule, const StateBatch& batch) const;
  void put_chunks(const StateBatch& batch);

  StepContext& step_;
  const int32_t* sent_ = nullptr;  // whose arrays are on the device
  StatesView arrays_{};            // of them, without states
  // States of the last launch_delta_step() of this step, if no other kernel has written states since and the arrays are the
  // same: see gated_delta().
  const void* settled_ = nullptr;
  const int32_t* chunks_ = nullptr;
  int32_t chunk_count_ = 0;
  Scratch delta_;  // what the delta rule's chunks have without a state
};

}  // namespace sluice::kernels::cuda
