// Linked instead of the back-end where the build has no CUDA.
#include "kernels/cuda/cuda.h"

namespace sluice::kernels {

Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const CudaOptions&) {
  return Error{ErrorCode::Unsupported, "built without CUDA: 'cmake --preset cuda' makes a build with it"};
}

}  // namespace sluice::kernels
