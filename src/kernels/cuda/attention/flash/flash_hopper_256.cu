// FlashInfer's kernel for sm_90a with heads of 256 elements: 128 queries by 64 keys, two stages of keys and of values, which
// take the shared memory that FlashInfer's own choice of 32 keys leaves.
#include "kernels/cuda/attention/flash/flash_hopper.cuh"

namespace sluice::kernels::cuda {

void launch_hopper_256(const FlashParams& p, Stream stream) {
  using Element = cutlass::bfloat16_t;
  using Traits = flashinfer::AttentionKernelTraits<false, 256, 256, 128, 64, 2, Element, Element, Element,
                                                   int32_t, flashinfer::StandardAttention>;
  HopperParams arguments = hopper_params(p);
  check_launch(flashinfer::BatchPrefillWithPagedKVCacheKernelTraitsDispatched<Traits, false, true, false>(
                   arguments, stream),
               "flash attention on Hopper");
}

}  // namespace sluice::kernels::cuda
