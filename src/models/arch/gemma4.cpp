// Gemma 4 (text): Gemma 3 with wider full layers, normed values, factors and inputs per layer, shared last KV, and experts.
#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGemma4HuggingFace[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
                                                   "Gemma4UnifiedForCausalLM",
                                                   "Gemma4UnifiedForConditionalGeneration"};
constexpr std::string_view kGemma4Gguf[] = {"gemma4"};

int of_full(Config& c, size_t layer, std::string_view key, std::string_view published, int otherwise) {
  return c.sub("per_layer_config").sub(std::to_string(layer)).size_or(key, c.size_or(published, otherwise));
}

void set_mixer(Config& c, Attention& m, size_t layer) {
  const bool full = m.window == 0;
  m.scale = 1.0f;
  m.rope = full ? 0 : 1;
  m.qk_norm = QkNorm::PerHead;
  m.norm_values = true;
  m.values_are_keys = c.is_gguf() ? !c.stores("blk." + std::to_string(layer) + ".attn_v.weight")
                                  : full && c.flag_or("attention_k_eq_v", false);
  if (!full) m.head_dim = c.size_or("local_head_dim", m.head_dim);
  if (full && !c.is_gguf()) m.head_dim = of_full(c, layer, "head_dim", "global_head_dim", 512);
  if (m.values_are_keys && !c.is_gguf())
    m.kv_heads = of_full(c, layer, "num_key_value_heads", "num_global_key_value_heads", m.kv_heads);
  check_heads(c, m);
}

ModelSpec build_gemma4(Config& c) {
  use_gemma_attention_and_activation(c);
  ModelSpec spec = decoder_spec(c);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  spec.logit_softcap = c.number_or("final_logit_softcapping", 0.0f);
  spec.per_layer_embedding = c.size_or("hidden_size_per_layer_input", 0);
  use_windows(c, spec, 6);
  use_sandwich(spec);
  share_last_kv(c, spec);
  int dims[] = {2, 2};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    set_mixer(c, mixer, i);
    dims[mixer.rope] = mixer.head_dim;
    spec.layers[i].scaled = true;
  }
  if (c.flag_or("enable_moe_block", c.size_or("num_local_experts", 0) > 0)) use_experts_beside(c, spec);
  spec.ropes = {make_rope(c, {.dims = dims[0], .default_theta = 1e6f, .layer_type = "full_attention"}),
                make_local_rope(c, dims[1])};
  return spec;
}

}  // namespace

extern const Architecture gemma4{kGemma4HuggingFace, kGemma4Gguf, build_gemma4};

}  // namespace sluice::models::arch
