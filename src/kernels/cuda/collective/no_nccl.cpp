// Linked instead of nccl_collective.cpp where the build has no header of NCCL.
#include "kernels/cuda/collective/nccl_collective.h"

namespace sluice::kernels::cuda {

Result<std::unique_ptr<DeviceCollective>> join_nccl(StepContext&, const RankExchange&) {
  return Error{ErrorCode::Unsupported, "built without NCCL, whose header nccl.h was not found"};
}

}  // namespace sluice::kernels::cuda
