// Attention with heads of 128 elements over a cache in fp8.
#include "kernels/cuda/attention/flash/flash.cuh"

namespace sluice::kernels::cuda {

void launch_flash_128_fp8(const FlashParams& p, Stream stream) {
  launch_flash_dim<128, __nv_fp8_e4m3>(p, stream);
}

}  // namespace sluice::kernels::cuda
