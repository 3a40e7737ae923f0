// Mamba 2: layers of state spaces alone.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMamba2HuggingFace[] = {"Mamba2ForCausalLM"};
constexpr std::string_view kMamba2Gguf[] = {"mamba2"};

ModelSpec build_mamba2(Config& c) {
  if (c.is_gguf()) {  // says that there is no attention
    c.drop("num_attention_heads");
    c.assume("num_attention_heads", 1);
    c.assume("head_dim", 2);
  }
  c.assume("mamba_n_heads", c.size("num_attention_heads"));
  c.assume("mamba_d_state", c.size_or("state_size", 128));
  c.assume("mamba_n_groups", c.size_or("n_groups", 8));
  c.assume("mamba_d_conv", c.size_or("conv_kernel", 4));
  c.assume("mamba_expand", c.size_or("expand", 2));
  c.assume("max_position_embeddings", 1 << 20);
  ModelSpec spec = decoder_spec(c);
  const StateSpace space = state_space(c, spec.dim);
  for (LayerSpec& layer : spec.layers) layer = {.mixer = space, .ffn = NoFfn{}};
  spec.ropes.clear();
  return spec;
}

}  // namespace

extern const Architecture mamba2{kMamba2HuggingFace, kMamba2Gguf, build_mamba2};

}  // namespace sluice::models::arch
