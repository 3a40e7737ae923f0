// Slots of a token whose expert another rank has: they get weight zero and some expert of this rank, and the others the
// expert's number in this rank's bank. A thread per slot.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {
namespace {

__global__ void __launch_bounds__(256) own_experts_kernel(const OwnExpertsParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.n * p.used) return;
  int32_t& id = p.ids[i / p.used * p.ids_stride + i % p.used];
  const bool own = id >= p.first && id < p.first + p.count;
  // Those of others are spread, so that no expert has all of them.
  if (!own) p.weights[i / p.used * p.weights_stride + i % p.used] = 0.0f;
  id = own ? id - p.first : id % p.count;
}

}  // namespace

void launch_own_experts(const OwnExpertsParams& p, Stream stream) {
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(p.n * p.used, 256))), dim3(256)};
  launch("own experts", own_experts_kernel, grid, stream, p);
}

}  // namespace sluice::kernels::cuda
