// Collectives by NCCL, whose library is loaded when it is asked for: GPUs of any number of machines, one rank on each.
// Where the build has no header of NCCL, no_nccl.cpp is linked instead.
#pragma once

#include "kernels/cuda/collective/introductions.h"
#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

// The context outlives the result. REQUIRES: no two ranks on one GPU.
Result<std::unique_ptr<DeviceCollective>> join_nccl(StepContext& step, const RankExchange& ranks);

}  // namespace sluice::kernels::cuda
