// Steps as CUDA graphs: one that comes a second time is recorded, and replayed from then on.
#pragma once

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

class StepGraphs {
 public:
  explicit StepGraphs(StepContext& step) : step_(step) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Runs the step that the context's key is of; `body` makes its calls.
  void run(const std::function<void()>& body);
  size_t count() const { return graphs_.size(); }

 private:
  cudaGraphExec_t record(const std::function<void()>& body);
  void clear();

  StepContext& step_;
  std::unordered_map<StepKey::Value, cudaGraphExec_t, StepKey::Hash> graphs_;
  std::unordered_set<StepKey::Value, StepKey::Hash> seen_;
};

}  // namespace sluice::kernels::cuda
