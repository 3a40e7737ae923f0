// Orion: the Llama shape with layer norms.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOrionHuggingFace[] = {"OrionForCausalLM"};
constexpr std::string_view kOrionGguf[] = {"orion"};

ModelSpec build_orion(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  return spec;
}

}  // namespace

extern const Architecture orion{kOrionHuggingFace, kOrionGguf, build_orion};

}  // namespace sluice::models::arch
