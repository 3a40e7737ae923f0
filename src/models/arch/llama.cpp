// Llama 1 to 3 and what shares its shape. GGUF files call Mistral and Mixtral "llama" too, and store q and k
// permuted for interleaved rotation.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kLlamaHuggingFace[] = {"LlamaForCausalLM",     "AquilaForCausalLM",
                                                  "YiForCausalLM",        "InternLMForCausalLM",
                                                  "InternLM3ForCausalLM", "XverseForCausalLM"};
constexpr std::string_view kLlamaGguf[] = {"llama", "xverse"};

ModelSpec build_llama(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  if (c.is_gguf()) use_windows(c, spec, 0);
  if (c.size_or("num_local_experts", 0) > 0)
    for (LayerSpec& layer : spec.layers) layer.ffn = moe_ffn(c);
  return spec;
}

}  // namespace

extern const Architecture llama{kLlamaHuggingFace, kLlamaGguf, build_llama};

}  // namespace sluice::models::arch
