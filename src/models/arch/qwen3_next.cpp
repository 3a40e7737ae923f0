// Qwen 3 Next, 3.5 and 3.6, dense and mixture: gated delta-rule attention, with gated attention in every fourth layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kQwen3NextHuggingFace[] = {
    "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration"};
constexpr std::string_view kQwen3NextGguf[] = {"qwen35", "qwen35moe", "qwen3next"};

// Query and gate of a head lie side by side.
WeightNames gated_names(const Config& c, const WeightNames& names) {
  if (c.is_gguf())
    return names.with({{WeightSlot::Qkv, "blk.{l}.attn_q", Fold::HeadQueries},
                       {WeightSlot::Qkv, "blk.{l}.attn_k"},
                       {WeightSlot::Qkv, "blk.{l}.attn_v"},
                       {WeightSlot::AttentionGate, "blk.{l}.attn_q", Fold::HeadGates}});
  return names
      .with({{WeightSlot::Qkv, "model.layers.{l}.self_attn.q_proj", Fold::HeadQueries},
             {WeightSlot::Qkv, "model.layers.{l}.self_attn.k_proj"},
             {WeightSlot::Qkv, "model.layers.{l}.self_attn.v_proj"},
             {WeightSlot::AttentionGate, "model.layers.{l}.self_attn.q_proj", Fold::HeadGates}})
      .folded({WeightSlot::MixerNorm, WeightSlot::FfnNorm, WeightSlot::OutputNorm, WeightSlot::QNorm,
               WeightSlot::KNorm},
              Fold::AddOne);
}

ModelSpec build_qwen3_next(Config& c) {
  c.assume("partial_rotary_factor", 0.25);
  c.assume("rms_norm_eps", 1e-6);
  const std::vector<std::string> kinds = layer_kinds(c, "linear_attention");
  const auto interval = static_cast<size_t>(c.size_or("full_attention_interval", 4));
  ModelSpec spec = decoder_spec(c);
  GatedDelta delta = gated_delta(c);
  if (c.architecture() == kQwen3NextGguf[2]) delta.tiled = false;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention(spec.layers[i]).qk_norm = QkNorm::PerHead;
    attention(spec.layers[i]).gated = true;
    if (i < kinds.size() ? kinds[i] == "linear_attention" : interval == 0 || (i + 1) % interval != 0)
      spec.layers[i].mixer = delta;
  }
  if (c.size_or("num_local_experts", 0) > 0) {
    MoeFfn ffn = moe_ffn(c);
    ffn.routing.score = kernels::Routing::Score::Softmax;
    ffn.routing.normalize = c.flag_or("norm_topk_prob", true);
    ffn.shared_inner = c.size_or("shared_expert_intermediate_size", 0);
    ffn.shared_gate = ffn.shared_inner > 0;
    use_sparse_moe(c, spec, ffn);
  }
  spec.names = gated_names(c, spec.names);
  return spec;
}

}  // namespace

extern const Architecture qwen3_next{kQwen3NextHuggingFace, kQwen3NextGguf, build_qwen3_next};

}  // namespace sluice::models::arch
