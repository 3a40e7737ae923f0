// Idefics 3 and SmolVLM: SigLIP over tiles of a picture and the picture itself, pixel shuffle, one matrix.
#include "models/vision/families.h"

namespace sluice::models::vision {

namespace {

constexpr int kTilesOfASide = 4;  // where the processor does not say

}  // namespace

VisionSpec build_idefics3(Config& config, Config& processor) {
  VisionSpec spec = plain_encoder(config, processor);
  spec.placeholder = spec.image_token = "<image>";
  spec.image_token_id = config.size_or("image_token_id", 128257);
  const int tile = processor.sub("max_image_size").size_or("longest_edge", 364);
  spec.picture =
      TiledPicture{.longest_edge = processor.sub("size").size_or("longest_edge", kTilesOfASide * tile),
                   .tile = tile,
                   .split = processor.flag_or("do_image_splitting", true)};
  if (!processor.has("resample")) spec.filter = image::Filter::Lanczos;
  spec.merge = config.size_or("scale_factor", 2);
  spec.projector = {MergePatches{}, ProjectorMatrix{"connector.modality_projection.proj", spec.output_dim}};
  spec.prefixes = {"model.vision_model.", "vision_model."};
  return spec;
}

}  // namespace sluice::models::vision
