// Hunyuan, dense and mixture: a norm on each head of q and k after the rotation, one shared expert.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHunyuanHuggingFace[] = {"HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM"};
constexpr std::string_view kHunyuanGguf[] = {"hunyuan-dense", "hunyuan-moe"};

ModelSpec build_hunyuan(Config& c) {
  ModelSpec spec = decoder_spec(c);
  const bool norms = c.is_gguf() ? c.stores("blk.0.attn_q_norm.weight") : c.flag_or("use_qk_norm", true);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = norms ? QkNorm::PerHead : QkNorm::None;
    attention(layer).qk_norm_after_rope = true;
    if (c.size_or("num_local_experts", 0) <= 1) continue;
    MoeFfn ffn = moe_ffn(c);
    ffn.routing.score = kernels::Routing::Score::Softmax;
    ffn.routing.normalize = true;
    ffn.shared_inner = c.size_or("shared_expert_intermediate_size", c.size_or("intermediate_size", 0));
    layer.ffn = ffn;
  }
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::QNorm, "model.layers.{l}.self_attn.query_layernorm"},
                                  {WeightSlot::KNorm, "model.layers.{l}.self_attn.key_layernorm"},
                                  {WeightSlot::Router, "model.layers.{l}.mlp.gate.wg"},
                                  {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_mlp.gate_proj"},
                                  {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_mlp.up_proj"},
                                  {WeightSlot::SharedDown, "model.layers.{l}.mlp.shared_mlp.down_proj"}});
  return spec;
}

}  // namespace

extern const Architecture hunyuan{kHunyuanHuggingFace, kHunyuanGguf, build_hunyuan};

}  // namespace sluice::models::arch
