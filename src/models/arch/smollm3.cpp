// SmolLM 3: the Llama shape with no positions in every fourth layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kSmollm3HuggingFace[] = {"SmolLM3ForCausalLM"};
constexpr std::string_view kSmollm3Gguf[] = {"smollm3"};

ModelSpec build_smollm3(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  if (c.has("layer_types")) use_windows(c, spec, 0);
  drop_listed_ropes(c, spec);
  return spec;
}

}  // namespace

extern const Architecture smollm3{kSmollm3HuggingFace, kSmollm3Gguf, build_smollm3};

}  // namespace sluice::models::arch
