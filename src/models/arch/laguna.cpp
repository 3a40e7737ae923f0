// Laguna: heads counted per layer, each gated by softplus, norms on each head, a rope for each kind of layer, experts by
// sigmoid beside a shared one after the first dense layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kLagunaHuggingFace[] = {"LagunaForCausalLM"};

ModelSpec build_laguna(Config& c) {
  c.assume("first_k_dense_replace", 1);
  const std::vector<int> heads = c.take_sizes("num_attention_heads_per_layer");
  const bool per_head = !c.is_text("gating") || c.text_or("gating", "") == "per-head";
  ModelSpec spec = decoder_spec(c);
  if (c.has("layer_types")) use_windows(c, spec, 1);
  use_ropes_by_kind(c, spec, {.full_theta = 5e5f});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    if (i < heads.size()) mixer.heads = heads[i];
    mixer.qk_norm = QkNorm::PerHead;
    mixer.gated = true;
    mixer.gate_per_head = per_head;
    mixer.gate = Activation::Softplus;
    check_heads(c, mixer);
  }
  MoeFfn ffn = grouped_moe_ffn(c);
  ffn.routing.normalize = true;
  ffn.routing.scale = c.number_or("moe_routed_scaling_factor", 1.0f);
  ffn.router_softcap = c.number_or("moe_router_logit_softcapping", 0.0f);
  ffn.shared_inner = c.size_or("shared_expert_intermediate_size", 512);
  use_moe(c, spec, ffn);
  return spec;
}

}  // namespace

extern const Architecture laguna{kLagunaHuggingFace, {}, build_laguna};

}  // namespace sluice::models::arch
