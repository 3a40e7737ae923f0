// BitNet (weights not packed): the Llama shape with a gate of squared ReLU and norms before the output and down
// matrices.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kBitnetHuggingFace[] = {"BitNetForCausalLM", "BitnetForCausalLM"};
constexpr std::string_view kBitnetGguf[] = {"bitnet"};

ModelSpec build_bitnet(Config& c) {
  if (c.is_gguf()) c.assume("hidden_act", "relu2");
  ModelSpec spec = decoder_spec(c);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).norm_output = true;
    std::get<DenseFfn>(layer.ffn).norm_inner = true;
  }
  return spec;
}

}  // namespace

extern const Architecture bitnet{kBitnetHuggingFace, kBitnetGguf, build_bitnet};

}  // namespace sluice::models::arch
