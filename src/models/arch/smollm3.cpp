// SmolLM 3: the Llama shape with no positions in every fourth layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"SmolLM3ForCausalLM"};
constexpr std::string_view kGguf[] = {"smollm3"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  if (c.has("layer_types")) use_windows(c, spec, 0);
  const std::vector<double> has_rope = c.numbers("no_rope_layers");  // 1 where a layer HAS rope
  const auto interval = static_cast<size_t>(c.size_or("no_rope_layer_interval", 4));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool rope = i < has_rope.size() ? has_rope[i] != 0 : interval == 0 || (i + 1) % interval != 0;
    if (!rope) attention(spec.layers[i]).rope = -1;
  }
  return spec;
}

}  // namespace

extern const Architecture smollm3{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
