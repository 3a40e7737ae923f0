// Orion: the Llama shape with layer norms.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"OrionForCausalLM"};
constexpr std::string_view kGguf[] = {"orion"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  return spec;
}

}  // namespace

extern const Architecture orion{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
