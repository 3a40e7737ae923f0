// Mistral and Ministral: the Llama shape with sliding windows (where the config sets any); Ministral 3 raises
// the temperature of long contexts.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMistralHuggingFace[] = {"MistralForCausalLM", "MinistralForCausalLM",
                                                    "Ministral3ForCausalLM",
                                                    "Mistral3ForConditionalGeneration", "CwmForCausalLM"};
constexpr std::string_view kMistralGguf[] = {"mistral3"};

ModelSpec build_mistral(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  use_windows(c, spec, 0);
  for (LayerSpec& layer : spec.layers) attention(layer).temperature = query_temperature(c);
  return spec;
}

}  // namespace

extern const Architecture mistral{kMistralHuggingFace, kMistralGguf, build_mistral};

}  // namespace sluice::models::arch
