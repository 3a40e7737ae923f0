// DBRX: layer norms without bias, clipped q, k and v, softmax-routed experts whose rows lie in one matrix.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kDbrxHuggingFace[] = {"DbrxForCausalLM"};
constexpr std::string_view kDbrxGguf[] = {"dbrx"};

// The parameters of attention and experts lie one level down.
void lift_keys(Config& c) {
  Config mixer = c.sub("attn_config"), ffn = c.sub("ffn_config");
  c.assume("num_key_value_heads", mixer.size_or("kv_n_heads", 1));
  c.assume("rope_theta", mixer.number_or("rope_theta", 10000.0f));
  c.assume("clip_qkv", mixer.number_or("clip_qkv", 0.0f));
  c.assume("intermediate_size", ffn.size_or("ffn_hidden_size", 3584));
  c.assume("num_local_experts", ffn.size_or("moe_num_experts", 4));
  c.assume("num_experts_per_tok", ffn.size_or("moe_top_k", 1));
  c.assume("norm_topk_prob", !ffn.is_null("moe_normalize_expert_weights"));
  c.assume("hidden_act", json::string(ffn.sub("ffn_act_fn").text_or("name", "silu")));
  if (ffn.number_or("moe_normalize_expert_weights", 1.0f) != 1.0f)
    ffn.fail("'moe_normalize_expert_weights' must be 1");
}

ModelSpec build_dbrx(Config& c) {
  if (!c.is_gguf()) lift_keys(c);
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  MoeFfn ffn = moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Softmax;
  ffn.routing.normalize = c.flag_or("norm_topk_prob", true);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).clip = c.number_or("clip_qkv", 0.0f);
    layer.ffn = ffn;
  }
  if (c.is_gguf()) {
    spec.names = spec.names.with({{WeightSlot::FfnNorm, "blk.{l}.attn_output_norm"}});
    return spec;
  }
  spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                {WeightSlot::OutputNorm, "transformer.norm_f"},
                {WeightSlot::Output, "lm_head"},
                {WeightSlot::MixerNorm, "transformer.blocks.{l}.norm_attn_norm.norm_1"},
                {WeightSlot::FfnNorm, "transformer.blocks.{l}.norm_attn_norm.norm_2"},
                {WeightSlot::Qkv, "transformer.blocks.{l}.norm_attn_norm.attn.Wqkv"},
                {WeightSlot::AttentionOut, "transformer.blocks.{l}.norm_attn_norm.attn.out_proj"},
                {WeightSlot::Router, "transformer.blocks.{l}.ffn.router.layer"},
                {WeightSlot::ExpertGateUp, "transformer.blocks.{l}.ffn.experts.mlp.w1"},
                {WeightSlot::ExpertGateUp, "transformer.blocks.{l}.ffn.experts.mlp.v1"},
                {WeightSlot::ExpertDown, "transformer.blocks.{l}.ffn.experts.mlp.w2", Fold::Transpose}};
  return spec;
}

}  // namespace

extern const Architecture dbrx{kDbrxHuggingFace, kDbrxGguf, build_dbrx};

}  // namespace sluice::models::arch
