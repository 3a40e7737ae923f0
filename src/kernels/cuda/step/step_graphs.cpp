#include "kernels/cuda/step/step_graphs.h"

namespace sluice::kernels::cuda {

namespace {
constexpr size_t kMaxGraphs = 1024;
}

StepGraphs::~StepGraphs() {
  cudaStreamSynchronize(step_.stream);
  clear();
}

void StepGraphs::clear() {
  for (auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

// The first time a step is seen it just runs, which also loads its kernels: that cannot be done while
// recording.
void StepGraphs::run(const std::function<void()>& body) {
  const StepKey::Value key = step_.key.value();
  if (const auto found = graphs_.find(key); found != graphs_.end())
    return check(cudaGraphLaunch(found->second, step_.stream), "step");
  if (seen_.insert(key).second) return body();
  if (graphs_.size() >= kMaxGraphs) {
    check(cudaStreamSynchronize(step_.stream), "waiting for the device");
    clear();
  }
  cudaGraphExec_t const graph = record(body);
  graphs_.emplace(key, graph);
  check(cudaGraphLaunch(graph, step_.stream), "step");
}

cudaGraphExec_t StepGraphs::record(const std::function<void()>& body) {
  check(cudaStreamBeginCapture(step_.stream, cudaStreamCaptureModeThreadLocal), "recording a step");
  try {
    body();
  } catch (...) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(step_.stream, &unfinished);
    if (unfinished != nullptr) cudaGraphDestroy(unfinished);
    throw;
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamEndCapture(step_.stream, &graph), "recording a step");
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "recording a step");
  return executable;
}

}  // namespace sluice::kernels::cuda
