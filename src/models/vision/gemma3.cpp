// Gemma 3: SigLIP over a square, averages of neighbouring patches, a norm and one matrix; positions of a picture see each other.
#include <cmath>

#include "models/vision/families.h"

namespace sluice::models::vision {

VisionSpec build_gemma3(Config& config, Config& processor) {
  VisionSpec spec = plain_encoder(config, processor);
  spec.placeholder = "<start_of_image>";
  spec.before = "\n\n<start_of_image>";
  spec.image_token = "<image_soft_token>";
  spec.after = "<end_of_image>\n\n";
  spec.image_token_id = config.size_or("image_token_id", config.size_or("image_token_index", 262144));
  spec.bidirectional = true;
  if (!processor.has("resample")) spec.filter = image::Filter::Bilinear;
  spec.picture = SquarePicture{.side = processor.sub("size").size_or("height", spec.grid * spec.patch)};
  const auto tokens = static_cast<float>(config.size_or("mm_tokens_per_image", 256));
  const int side = static_cast<int>(std::lround(std::sqrt(tokens)));
  if (side < 1 || side > spec.grid || spec.grid % side != 0)
    config.fail("'mm_tokens_per_image' is no square that fits the patches");
  spec.merge = side > 0 ? spec.grid / side : 1;
  using Stored = ProjectorMatrix::Stored;
  spec.projector = {
      PoolPatches{},
      ProjectorNorm{"multi_modal_projector.mm_soft_emb_norm", NormKind::Rms, spec.norm_eps, true},
      ProjectorMatrix{"multi_modal_projector.mm_input_projection_weight", spec.output_dim, false,
                      Stored::Columns}};
  spec.prefixes = {"model.vision_tower.vision_model.", "vision_tower.vision_model.", "model.vision_tower.",
                   "vision_tower."};
  return spec;
}

}  // namespace sluice::models::vision
