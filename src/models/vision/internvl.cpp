// InternVL (as transformers has it): a ViT with scaled branches over tiles of a picture, pixel shuffle, a norm and two matrices.
#include <algorithm>
#include <cmath>

#include "models/vision/families.h"

namespace sluice::models::vision {

VisionSpec build_internvl(Config& config, Config& processor) {
  Config tower = config.sub("vision_config");
  VisionSpec spec = plain_encoder(config, processor);
  read_activation(tower, spec, "gelu");
  if (tower.text_or("norm_type", "layer_norm") == "rms_norm") spec.norm = NormKind::Rms;
  spec.placeholder = spec.image_token = "<IMG_CONTEXT>";
  spec.before = "<img>";
  spec.after = "</img>";
  spec.image_token_id = config.size_or("image_token_id", 151667);
  spec.class_token = true;
  spec.output_norm = !tower.flag_or("use_mean_pooling", true);
  if (!tower.flag_or("use_absolute_position_embeddings", true)) spec.positions = TablePositions::None;
  if (config.numbers("vision_feature_layer") != std::vector<double>{-1} && config.has("vision_feature_layer"))
    config.fail("'vision_feature_layer' must be -1");
  spec.picture = GridPicture{.tile = processor.sub("size").size_or("height", spec.grid * spec.patch),
                             .min_tiles = processor.size_or("min_patches", 1),
                             .max_tiles = std::min(256, processor.size_or("max_patches", 12))};
  const float ratio = config.number_or("downsample_ratio", 0.5f);
  spec.merge = ratio > 0.01f ? static_cast<int>(std::lround(1.0f / ratio)) : 1;
  spec.projector = {MergePatches{}, ProjectorNorm{"multi_modal_projector.layer_norm"},
                    ProjectorMatrix{"multi_modal_projector.linear_1", spec.output_dim, true},
                    ProjectorMatrix{"multi_modal_projector.linear_2", spec.output_dim}};
  spec.prefixes = {"model.vision_tower.", "vision_tower."};
  TowerNames& names = spec.names;
  names.patches = "embeddings.patch_embeddings.projection";
  names.positions = "embeddings.position_embeddings";
  names.class_token = "embeddings.cls_token";
  names.output_norm = "layernorm";
  names.layer = "encoder.layer.{}.";
  names.attention_norm = "layernorm_before";
  names.ffn_norm = "layernorm_after";
  names.qkv = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};
  if (tower.flag_or("use_qk_norm", false)) {
    names.q_norm = "attention.q_norm.weight";
    names.k_norm = "attention.k_norm.weight";
  }
  names.out = "attention.projection_layer";
  names.attention_scale = "lambda_1";
  names.ffn_scale = "lambda_2";
  return spec;
}

}  // namespace sluice::models::vision
