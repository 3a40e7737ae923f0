// OLMo 1: layer norms without parameters, queries, keys and values clipped.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOlmoHuggingFace[] = {"OlmoForCausalLM"};
constexpr std::string_view kOlmoGguf[] = {"olmo"};

ModelSpec build_olmo(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  spec.norm = NormKind::Layer;
  spec.norm_gain = false;
  spec.norm_eps = 1e-5f;
  for (LayerSpec& layer : spec.layers) attention(layer).clip = c.number_or("clip_qkv", 0.0f);
  return spec;
}

}  // namespace

extern const Architecture olmo{kOlmoHuggingFace, kOlmoGguf, build_olmo};

}  // namespace sluice::models::arch
