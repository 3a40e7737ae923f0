// Attention over paged latents on Hopper's own matrix instructions.
#include <flashinfer/attention/mla_hopper.cuh>

#include "kernels/cuda/latent/flash_latent_arguments.cuh"

namespace sluice::kernels::cuda {

void launch_latent_sm90(const LatentParams& p, Stream stream) {
  using flashinfer::MaskMode;
  using flashinfer::mla::BatchMLAPageAttentionHopper;
  const LatentArguments a = latent_arguments(p);
  const auto x = static_cast<uint32_t>(p.layout.cluster), y = static_cast<uint32_t>(p.layout.clusters);
  check_launch(
      p.layout.causal != 0
          ? BatchMLAPageAttentionHopper<MaskMode::kCausal, kLatentDim, kLatentRopeDim>(a, x, y, stream)
          : BatchMLAPageAttentionHopper<MaskMode::kNone, kLatentDim, kLatentRopeDim>(a, x, y, stream),
      "latent attention");
}

}  // namespace sluice::kernels::cuda
