// Qwen 2.5 VL: patches of two frames, rotary positions, attention in windows but for some layers, neighbours merged by two
// matrices.
#include <algorithm>

#include "models/vision/families.h"

namespace sluice::models::vision {

void use_qwen_pictures(Config& config, Config& processor, VisionSpec& spec) {
  Config tower = config.sub("vision_config");
  spec.placeholder = spec.image_token = "<|image_pad|>";
  spec.image_token_id = config.size_or("image_token_id", 151655);
  spec.grid_positions = true;
  spec.frames = std::max(1, tower.size_or("temporal_patch_size", 2));
  spec.merge = std::max(1, tower.size_or("spatial_merge_size", 2));
  spec.rope.theta = tower.sub("rope_parameters").number_or("rope_theta", 10000.0f);
  Config size = processor.sub("size");
  spec.picture = ScaledPicture{
      .min_pixels = size.size_or("shortest_edge", processor.size_or("min_pixels", 56 * 56)),
      .max_pixels = size.size_or("longest_edge", processor.size_or("max_pixels", 28 * 28 * 1280))};
  spec.output_norm = false;
  spec.prefixes = {"model.visual.", "visual."};
  TowerNames& names = spec.names;
  names.patches = "patch_embed.proj";
  names.positions = "pos_embed.weight";
  names.layer = "blocks.{}.";
  names.attention_norm = "norm1";
  names.ffn_norm = "norm2";
  names.qkv = {"attn.qkv"};
  names.out = "attn.proj";
}

VisionSpec build_qwen2_5_vl(Config& config, Config& processor) {
  Config tower = config.sub("vision_config");
  VisionSpec spec = plain_encoder(config, processor);
  use_qwen_pictures(config, processor, spec);
  read_activation(tower, spec, "silu");
  spec.norm = NormKind::Rms;
  spec.gated = true;
  spec.positions = TablePositions::None;
  spec.window = std::max(1, tower.size_or("window_size", 112) / std::max(1, spec.unit()));
  for (const double layer : tower.numbers("fullatt_block_indexes"))
    spec.full_layers.push_back(static_cast<int>(std::clamp(layer, -1.0, 1e6)));
  spec.projector = {ProjectorNorm{"visual.merger.ln_q", NormKind::Rms, 1e-6f}, MergePatches{},
                    ProjectorMatrix{"visual.merger.mlp.0", spec.dim * spec.merge * spec.merge, true},
                    ProjectorMatrix{"visual.merger.mlp.2", spec.output_dim}};
  spec.names.up = {"mlp.gate_proj", "mlp.up_proj"};
  spec.names.down = "mlp.down_proj";
  return spec;
}

}  // namespace sluice::models::vision
