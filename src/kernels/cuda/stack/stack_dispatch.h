// Stacks of layers: which steps their kernel runs, and its memory.
#pragma once

#include <vector>

#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/stack/stack_params.h"
#include "kernels/layer_stack.h"

namespace sluice::kernels::cuda {

class StackDispatch {
 public:
  // Context and attention outlive this. Off: no step.
  StackDispatch(StepContext& step, AttentionDispatch& attention, bool on)
      : step_(step), attention_(attention), on_(on) {}

  // As LayerStackDevice::run_layers.
  bool run(const TensorView& x, const LayerStack& stack, const TensorView& angles, const RaggedBatch& batch);

 private:
  struct Workspace {
    StackLayout layout;
    DeviceBuffer memory;
  };
  bool takes(const RaggedBatch& batch);
  uint32_t* workspace_of(const StackLayout& layout);

  StepContext& step_;
  AttentionDispatch& attention_;
  bool on_;
  std::vector<Workspace> workspaces_;  // one for each kind of stack
};

}  // namespace sluice::kernels::cuda
