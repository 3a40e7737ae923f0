// Ling and Ring: the Llama shape with fused q, k and v and shared experts beside the routed ones, chosen by
// softmax (1) or, with a norm on each head and half of it rotated, as DeepSeek 3 does (2).
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kBailingHuggingFace[] = {"BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"};
constexpr std::string_view kBailingGguf[] = {"bailingmoe", "bailingmoe2"};

ModelSpec build_bailing(Config& c) {
  const bool second = c.architecture() == kBailingHuggingFace[1] || c.architecture() == kBailingGguf[1];
  if (second) c.assume("partial_rotary_factor", 0.5);
  if (c.flag_or("norm_head", false)) c.fail("'norm_head' is set, which is not supported");
  ModelSpec spec = decoder_spec(c, second ? RopeStyle::NeoX : RopeStyle::GptJ);
  MoeFfn ffn = grouped_moe_ffn(c);
  if (!second) {
    ffn.routing.score = kernels::Routing::Score::Softmax;
    ffn.router_choice_bias = false;
  }
  use_moe(c, spec, ffn);
  const bool norms = c.is_gguf() ? c.stores("blk.0.attn_q_norm.weight") : c.flag_or("use_qk_norm", second);
  for (LayerSpec& layer : spec.layers)
    if (norms) attention(layer).qk_norm = QkNorm::PerHead;
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::TokenEmbedding, "model.word_embeddings"},
                                  {WeightSlot::Qkv, "model.layers.{l}.attention.query_key_value"},
                                  {WeightSlot::QNorm, "model.layers.{l}.attention.query_layernorm"},
                                  {WeightSlot::KNorm, "model.layers.{l}.attention.key_layernorm"},
                                  {WeightSlot::AttentionOut, "model.layers.{l}.attention.dense"},
                                  {WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.gate.expert_bias"}});
  return spec;
}

}  // namespace

extern const Architecture bailing{kBailingHuggingFace, kBailingGguf, build_bailing};

}  // namespace sluice::models::arch
