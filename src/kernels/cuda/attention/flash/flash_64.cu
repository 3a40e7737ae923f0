// Attention with heads of 64 elements.
#include "kernels/cuda/attention/flash/flash.cuh"

namespace sluice::kernels::cuda {

void launch_flash_64(const FlashParams& p, Stream stream) {
  launch_flash_dim<64>(p, stream);
}

}  // namespace sluice::kernels::cuda
