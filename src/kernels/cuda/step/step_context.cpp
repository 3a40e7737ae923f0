#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

StepContext::OwnedStream::OwnedStream(int device) {
  cuda::use_device(device);
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
}

StepContext::StepContext(const Options& options)
    : device(options.device),
      arch(options.arch),
      processors(options.processors),
      deterministic(options.deterministic),
      owned_(options.device),
      stream(owned_.stream),
      staging(stream) {}

}  // namespace sluice::kernels::cuda
