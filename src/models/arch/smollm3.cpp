// SmolLM 3: the Llama shape with no positions in every fourth layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"SmolLM3ForCausalLM"};
constexpr std::string_view kGguf[] = {"smollm3"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  if (c.has("layer_types")) use_windows(c, spec, 0);
  drop_listed_ropes(c, spec);
  return spec;
}

}  // namespace

extern const Architecture smollm3{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
