// The builders of vision towers, one file for each family.
#pragma once

#include "models/vision/vision.h"

namespace sluice::models::vision {

VisionSpec build_gemma3(Config& config, Config& processor);
VisionSpec build_idefics3(Config& config, Config& processor);
VisionSpec build_internvl(Config& config, Config& processor);
VisionSpec build_llava(Config& config, Config& processor);
VisionSpec build_pixtral(Config& config, Config& processor);
VisionSpec build_qwen2_5_vl(Config& config, Config& processor);
VisionSpec build_qwen3_vl(Config& config, Config& processor);

// -- what families share

// Patches, widths and layers from vision_config, and the processor's filter, means and deviations.
VisionSpec plain_encoder(Config& config, Config& processor);
// Of a tower: "quick_gelu" is x sigmoid(1.702 x).
void read_activation(Config& tower, VisionSpec& spec, std::string_view fallback);
// Merged patches of Qwen's processor and its text.
void use_qwen_pictures(Config& config, Config& processor, VisionSpec& spec);

}  // namespace sluice::models::vision
