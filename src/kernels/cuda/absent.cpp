// Linked instead of the back-end where the build has no CUDA.
#include "kernels/cuda/cuda.h"

namespace sluice::kernels {

namespace {

Error built_without() {
  return {ErrorCode::Unsupported, "built without CUDA: 'cmake --preset cuda' makes a build with it"};
}

}  // namespace

Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const CudaOptions&) {
  return built_without();
}

Result<std::vector<std::string>> describe_cuda_devices() {
  return built_without();
}

}  // namespace sluice::kernels
