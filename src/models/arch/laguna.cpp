// Laguna: heads counted per layer, each gated by softplus, norms on each head, a rope for each kind of layer, experts by
// sigmoid beside a shared one after the first dense layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kLagunaHuggingFace[] = {"LagunaForCausalLM"};
constexpr std::string_view kLagunaGguf[] = {"laguna"};

// GGUF files do not say which layers have a window: every fourth has none, from the first on.
void use_windows_of_file(Config& c, ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (i % 4 != 0) attention(spec.layers[i]).window = c.size_or("sliding_window", 0);
  const int head_dim = attention(spec.layers[0]).head_dim;
  use_ropes_of_file(c, spec, c.size_or("rotary_dim", head_dim), c.size_or("local_rotary_dim", head_dim));
}

ModelSpec build_laguna(Config& c) {
  c.assume("first_k_dense_replace", 1);
  const std::vector<int> heads =
      c.take_sizes(c.is_gguf() ? "num_attention_heads" : "num_attention_heads_per_layer");
  const bool per_head = c.is_gguf() ? c.stored_rows("blk.0.attn_gate.weight") ==
                                          (heads.empty() ? c.size("num_attention_heads") : heads[0])
                        : c.is_text("gating") ? c.text_or("gating", "") == "per-head"
                                              : c.flag_or("gating", true);
  const bool said = c.has("rope_parameters");
  ModelSpec spec = decoder_spec(c);
  if (c.has("layer_types")) use_windows(c, spec, 1);
  c.is_gguf() ? use_windows_of_file(c, spec)
              : use_ropes_by_kind(c, spec, {.full_theta = 5e5f, .full_part = said ? 1.0f : 0.5f});
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
  ffn.routing.scale = c.number_or(c.is_gguf() ? "routed_scaling_factor" : "moe_routed_scaling_factor", 1.0f);
  ffn.router_softcap = c.number_or("moe_router_logit_softcapping", 0.0f);
  ffn.shared_inner = c.size_or("shared_expert_intermediate_size", 512);
  use_moe(c, spec, ffn);
  return spec;
}

}  // namespace

extern const Architecture laguna{kLagunaHuggingFace, kLagunaGguf, build_laguna};

}  // namespace sluice::models::arch
