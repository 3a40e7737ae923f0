// Attention with heads of 128 elements.
#include "kernels/cuda/attention/flash/flash.cuh"

namespace sluice::kernels::cuda {

void launch_flash_128(const FlashParams& p, Stream stream) {
  launch_flash_dim<128>(p, stream);
}

}  // namespace sluice::kernels::cuda
