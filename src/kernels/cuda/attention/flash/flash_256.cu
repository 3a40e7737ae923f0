// Attention with heads of 256 elements.
#include "kernels/cuda/attention/flash/flash.cuh"

namespace sluice::kernels::cuda {

void launch_flash_256(const FlashParams& p, Stream stream) {
  launch_flash_dim<256>(p, stream);
}

}  // namespace sluice::kernels::cuda
