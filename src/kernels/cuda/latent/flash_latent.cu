// Attention over paged latents with mma.sync, on any architecture.
#include <flashinfer/attention/mla.cuh>

#include "kernels/cuda/latent/flash_latent_arguments.cuh"

namespace sluice::kernels::cuda {

size_t latent_partial_bytes(const LatentPlanLayout& layout) {
  return static_cast<size_t>(partial_rows(layout) * (kLatentDim * 2 + 4));
}

void launch_latent(const LatentParams& p, Stream stream) {
  using flashinfer::MaskMode;
  using flashinfer::mla::BatchMLAPagedAttention;
  const LatentArguments a = latent_arguments(p);
  const auto x = static_cast<uint32_t>(p.layout.cluster), y = static_cast<uint32_t>(p.layout.clusters);
  check_launch(p.layout.causal != 0
                   ? BatchMLAPagedAttention<MaskMode::kCausal, kLatentDim, kLatentRopeDim>(a, x, y, stream)
                   : BatchMLAPagedAttention<MaskMode::kNone, kLatentDim, kLatentRopeDim>(a, x, y, stream),
               "latent attention");
}

}  // namespace sluice::kernels::cuda
