// Qwen 3 VL and Qwen 3.5: learned positions between which a picture's lie, and rotary ones; neighbours merged by two
// matrices, for Qwen 3 VL behind some layers too: the decoder's first layers add what those make.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/vision/families.h"

namespace sluice::models::vision {

VisionSpec build_qwen3_vl(Config& config, Config& processor) {
  Config tower = config.sub("vision_config");
  VisionSpec spec = plain_encoder(config, processor);
  use_qwen_pictures(config, processor, spec);
  const auto rows = static_cast<float>(tower.size_or("num_position_embeddings", 2304));
  spec.grid = static_cast<int>(std::lround(std::sqrt(rows)));
  spec.positions = TablePositions::Bilinear;
  spec.names.up = {"mlp.linear_fc1"};
  spec.names.down = "mlp.linear_fc2";
  const int wide = spec.dim * spec.merge * spec.merge;
  const auto matrices = [&](const std::string& stem, Projector& to) {
    to.push_back(ProjectorMatrix{stem + ".linear_fc1", wide, true});
    to.push_back(ProjectorMatrix{stem + ".linear_fc2", spec.output_dim});
  };
  spec.projector = {ProjectorNorm{"visual.merger.norm", NormKind::Layer, 1e-6f}, MergePatches{}};
  matrices("visual.merger", spec.projector);
  for (const double layer : tower.numbers("deepstack_visual_indexes")) {
    const std::string stem = fmt::format("visual.deepstack_merger_list.{}", spec.deep.size());
    DeepProjector& deep = spec.deep.emplace_back();
    deep.layer = static_cast<int>(std::clamp(layer, -1.0, 1e6));
    deep.projector = {MergePatches{}, ProjectorNorm{stem + ".norm", NormKind::Layer, 1e-6f}};
    matrices(stem, deep.projector);
  }
  return spec;
}

}  // namespace sluice::models::vision
