// Mistral and Ministral: the Llama shape with sliding windows (where the config sets any); Ministral 3 raises
// the temperature of long contexts.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"MistralForCausalLM", "MinistralForCausalLM",
                                             "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration",
                                             "CwmForCausalLM"};
constexpr std::string_view kGguf[] = {"mistral3"};

Temperature query_temperature(Config& c) {
  Config rope = c.sub("rope_parameters");
  if (c.is_gguf())
    return {c.number_or("attn_temperature_scale", 0.0f), c.size_or("rope_scaling_original", 0)};
  return {rope.number_or("llama_4_scaling_beta", 0.0f), rope.size_or("original_max_position_embeddings", 0)};
}

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  use_windows(c, spec, 0);
  for (LayerSpec& layer : spec.layers) attention(layer).temperature = query_temperature(c);
  return spec;
}

}  // namespace

extern const Architecture mistral{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
