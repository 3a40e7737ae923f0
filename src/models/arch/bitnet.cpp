// BitNet (weights not packed): the Llama shape with a gate of squared ReLU and norms before the output and down
// matrices.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"BitNetForCausalLM", "BitnetForCausalLM"};
constexpr std::string_view kGguf[] = {"bitnet"};

ModelSpec build(Config& c) {
  if (c.is_gguf()) c.assume("hidden_act", "relu2");
  ModelSpec spec = decoder_spec(c);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).norm_output = true;
    std::get<DenseFfn>(layer.ffn).norm_inner = true;
  }
  return spec;
}

}  // namespace

extern const Architecture bitnet{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
