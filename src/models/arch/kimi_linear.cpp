// Kimi Linear: the delta rule with a decay per channel, latent attention without positions here and there, experts.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kKimiLinearHuggingFace[] = {"KimiLinearForCausalLM"};
constexpr std::string_view kKimiLinearGguf[] = {"kimi-linear"};

GatedDelta kimi_delta(Config& c) {
  Config own = c.sub("linear_attn_config");
  if (c.is_gguf()) {
    const int heads = c.size("num_attention_heads"), dim = c.size("kda_head_dim");
    for (const char* key : {"ssm_groups", "ssm_step_rank"}) c.assume(key, heads);
    c.assume("ssm_state_size", dim);
    c.assume("ssm_inner_size", int64_t{heads} * dim);
  }
  c.assume("linear_num_key_heads", own.size_or("num_heads", c.size_or("linear_num_heads", 32)));
  c.assume("linear_num_value_heads", c.size("linear_num_key_heads"));
  c.assume("linear_key_head_dim", own.size_or("head_dim", c.size_or("linear_head_dim", 128)));
  c.assume("linear_value_head_dim", c.size("linear_key_head_dim"));
  c.assume("linear_conv_kernel_dim", own.size_or("short_conv_kernel_size", 4));
  GatedDelta delta = gated_delta(c);
  delta.channel_decay = true;
  delta.gate_latent = delta.key_dim;
  delta.gate = Activation::Sigmoid;
  return delta;
}

ModelSpec build_kimi_linear(Config& c) {
  c.assume("num_experts_per_tok", c.size_or("num_experts_per_token", 8));
  c.assume("norm_topk_prob", c.flag_or("moe_renormalize", true));
  c.assume("max_position_embeddings", c.size_or("model_max_length", 1 << 20));
  c.assume("first_k_dense_replace", 1);
  const std::vector<std::string> kinds = layer_kinds(c, "linear_attention");
  const std::vector<double> full = c.sub("linear_attn_config").numbers("full_attn_layers");  // counted from 1
  ModelSpec spec = decoder_spec(c);
  spec.ropes.clear();
  const GatedDelta delta = kimi_delta(c);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool listed = std::count(full.begin(), full.end(), static_cast<double>(i + 1)) > 0;
    const bool attends = full.empty() ? i > 0 && i % 4 == 0 : listed;
    LatentAttention latent = latent_attention(c, attention(spec.layers[i]).heads);
    latent.rope = -1;
    spec.layers[i].mixer = latent;
    if (i < kinds.size() ? kinds[i] == "linear_attention" : !attends) spec.layers[i].mixer = delta;
  }
  if (c.size_or("num_local_experts", 0) > 0) use_moe(c, spec, grouped_moe_ffn(c));
  spec.names = c.is_gguf() ? kimi_linear_gguf_names() : kimi_linear_names();
  return spec;
}

}  // namespace

extern const Architecture kimi_linear{kKimiLinearHuggingFace, kKimiLinearGguf, build_kimi_linear};

}  // namespace sluice::models::arch
