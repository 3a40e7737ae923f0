// LLaVA 1.5: CLIP up to its last layer but one, without its class token, and two matrices. With Pixtral's tower it is Pixtral.
#include "models/vision/families.h"

namespace sluice::models::vision {

VisionSpec build_llava(Config& config, Config& processor) {
  Config tower = config.sub("vision_config");
  if (tower.text_or("model_type", "") == "pixtral") return build_pixtral(config, processor);
  VisionSpec spec = plain_encoder(config, processor);
  spec.norm_eps = tower.number_or("layer_norm_eps", 1e-5f);
  read_activation(tower, spec, "quick_gelu");
  spec.placeholder = spec.image_token = "<image>";
  spec.image_token_id = config.size_or("image_token_id", config.size_or("image_token_index", 32000));
  spec.class_token = spec.input_norm = true;
  spec.output_norm = false;
  // The output of the last layer but one.
  const std::vector<double> layer = config.numbers("vision_feature_layer");
  if (!layer.empty() && layer != std::vector<double>{-2}) config.fail("'vision_feature_layer' must be -2");
  if (config.text_or("vision_feature_select_strategy", "default") != "default")
    config.fail("'vision_feature_select_strategy' must be 'default'");
  --spec.layers;
  const int side = processor.sub("crop_size").size_or("height", spec.grid * spec.patch);
  spec.picture = SquarePicture{.side = side, .cut = processor.flag_or("do_center_crop", true)};
  spec.projector = {ProjectorMatrix{"multi_modal_projector.linear_1", spec.output_dim, true},
                    ProjectorMatrix{"multi_modal_projector.linear_2", spec.output_dim}};
  spec.prefixes = {"model.vision_tower.vision_model.", "vision_tower.vision_model.", "model.vision_tower.",
                   "vision_tower."};
  return spec;
}

}  // namespace sluice::models::vision
