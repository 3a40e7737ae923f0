// Pixtral (under LLaVA's name) and Mistral 3: a ViT with rotary positions over pictures of any shape, whose rows end with a
// token; Mistral 3 merges neighbouring patches first.
#include <algorithm>

#include "models/vision/families.h"

namespace sluice::models::vision {

VisionSpec build_pixtral(Config& config, Config& processor) {
  Config tower = config.sub("vision_config");
  VisionSpec spec = plain_encoder(config, processor);
  read_activation(tower, spec, "silu");
  spec.placeholder = spec.image_token = "[IMG]";
  spec.image_token_id = config.size_or("image_token_id", config.size_or("image_token_index", 10));
  spec.picture = RowPicture{.longest_edge = processor.sub("size").size_or("longest_edge", 1024),
                            .row_end = "[IMG_BREAK]",
                            .last_row_end = "[IMG_END]"};
  spec.norm = NormKind::Rms;
  spec.norm_eps = 1e-5f;
  spec.gated = true;
  spec.input_norm = true;
  spec.output_norm = false;
  spec.positions = TablePositions::None;
  spec.rope = {tower.sub("rope_parameters").number_or("rope_theta", tower.number_or("rope_theta", 10000.0f)),
               true};
  spec.merge = config.size_or("spatial_merge_size", 1);
  const std::vector<double> layer = config.numbers("vision_feature_layer");
  if (!layer.empty() && layer != std::vector<double>{-1}) config.fail("'vision_feature_layer' must be -1");
  using Stored = ProjectorMatrix::Stored;
  if (config.architecture().starts_with("Mistral3")) {
    spec.projector = {
        ProjectorNorm{"multi_modal_projector.norm", NormKind::Rms, config.number_or("rms_norm_eps", 1e-5f)},
        MergePatches{},
        ProjectorMatrix{"multi_modal_projector.patch_merger.merging_layer", spec.dim, false,
                        Stored::ChannelFirst}};
  }
  spec.projector.push_back(ProjectorMatrix{"multi_modal_projector.linear_1", spec.output_dim, true});
  spec.projector.push_back(ProjectorMatrix{"multi_modal_projector.linear_2", spec.output_dim});
  spec.prefixes = {"model.vision_tower.", "vision_tower."};
  TowerNames& names = spec.names;
  names.patches = "patch_conv";
  names.input_norm = "ln_pre";
  names.layer = "transformer.layers.{}.";
  names.attention_norm = "attention_norm";
  names.ffn_norm = "ffn_norm";
  names.qkv = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};
  names.out = "attention.o_proj";
  names.up = {"feed_forward.gate_proj", "feed_forward.up_proj"};
  names.down = "feed_forward.down_proj";
  return spec;
}

}  // namespace sluice::models::vision
