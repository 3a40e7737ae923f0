#include "models/loading/names.h"

#include <algorithm>
#include <array>

namespace sluice::models {

namespace {

constexpr std::array<std::string_view, 48> kSlotNames{
    "token embedding",
    "projection of the embedding",
    "projection to the embedding",
    "position embedding",
    "embedding norm",
    "output norm",
    "output",
    "mixer norm",
    "mixer post-norm",
    "ffn norm",
    "ffn post-norm",
    "qkv",
    "qkv",
    "attention output",
    "attention output norm",
    "q norm",
    "k norm",
    "sinks",
    "attention gate",
    "query down",
    "query down norm",
    "query up",
    "latent down",
    "latent norm",
    "latent up",
    "latent key up",
    "latent value up",
    "gate and up",
    "down",
    "down norm",
    "router",
    "router choice bias",
    "expert gate and up",
    "expert down",
    "shared gate and up",
    "shared down",
    "shared gate",
    "xielu alpha p",
    "xielu alpha n",
    "xielu beta",
    "layer input table",
    "layer input projection",
    "layer input projection norm",
    "layer input gate",
    "layer input output",
    "layer input norm",
    "layer scale",
    "rope factors",
};

WeightNames with_layer_inputs(const WeightNames& names) {
  return names.with({{Slot::LayerInputTable, "per_layer_token_embd"},
                     {Slot::LayerInputProjection, "per_layer_model_proj"},
                     {Slot::LayerInputProjectionNorm, "per_layer_proj_norm"},
                     {Slot::LayerInputGate, "blk.{l}.inp_gate"},
                     {Slot::LayerInputOut, "blk.{l}.proj"},
                     {Slot::LayerInputNorm, "blk.{l}.post_norm"},
                     {Slot::LayerScale, "blk.{l}.layer_output_scale"}});
}

}  // namespace

std::string_view name(Slot slot) {
  return kSlotNames[static_cast<size_t>(slot)];
}

WeightNames WeightNames::with(std::initializer_list<NameRow> rows) const {
  WeightNames result;
  const auto replaced = [&](Slot slot) {
    return std::any_of(rows.begin(), rows.end(), [&](const NameRow& row) { return row.slot == slot; });
  };
  for (const NameRow& row : rows_)
    if (!replaced(row.slot)) result.rows_.push_back(row);
  result.rows_.insert(result.rows_.end(), rows.begin(), rows.end());
  return result;
}

std::vector<NameRow> WeightNames::rows(Slot slot) const {
  std::vector<NameRow> found;
  for (const NameRow& row : rows_)
    if (row.slot == slot) found.push_back(row);
  return found;
}

WeightNames WeightNames::folded(std::initializer_list<Slot> slots, Fold fold) const {
  WeightNames result = *this;
  for (NameRow& row : result.rows_)
    if (std::find(slots.begin(), slots.end(), row.slot) != slots.end()) row.fold = fold;
  return result;
}

const WeightNames& hugging_face_names() {
  static const WeightNames names{
      {Slot::TokenEmbedding, "model.embed_tokens"},
      {Slot::OutputNorm, "model.norm"},
      {Slot::Output, "lm_head"},
      {Slot::MixerNorm, "model.layers.{l}.input_layernorm"},
      {Slot::FfnNorm, "model.layers.{l}.post_attention_layernorm"},
      {Slot::Qkv, "model.layers.{l}.self_attn.qkv_proj"},
      {Slot::Qkv, "model.layers.{l}.self_attn.q_proj"},
      {Slot::Qkv, "model.layers.{l}.self_attn.k_proj"},
      {Slot::Qkv, "model.layers.{l}.self_attn.v_proj"},
      {Slot::Qkk, "model.layers.{l}.self_attn.q_proj"},
      {Slot::Qkk, "model.layers.{l}.self_attn.k_proj"},
      {Slot::Qkk, "model.layers.{l}.self_attn.k_proj"},
      {Slot::AttentionOut, "model.layers.{l}.self_attn.o_proj"},
      {Slot::AttentionOutNorm, "model.layers.{l}.self_attn.attn_sub_norm"},
      {Slot::QNorm, "model.layers.{l}.self_attn.q_norm"},
      {Slot::KNorm, "model.layers.{l}.self_attn.k_norm"},
      {Slot::Sinks, "model.layers.{l}.self_attn.sinks"},
      {Slot::AttentionGate, "model.layers.{l}.self_attn.gate_proj"},
      {Slot::QueryDown, "model.layers.{l}.self_attn.q_a_proj"},
      {Slot::QueryDownNorm, "model.layers.{l}.self_attn.q_a_layernorm"},
      {Slot::QueryUp, "model.layers.{l}.self_attn.q_b_proj"},
      {Slot::QueryUp, "model.layers.{l}.self_attn.q_proj"},
      {Slot::LatentDown, "model.layers.{l}.self_attn.kv_a_proj_with_mqa"},
      {Slot::LatentNorm, "model.layers.{l}.self_attn.kv_a_layernorm"},
      {Slot::LatentUp, "model.layers.{l}.self_attn.kv_b_proj"},
      {Slot::GateUp, "model.layers.{l}.mlp.gate_up_proj"},
      {Slot::GateUp, "model.layers.{l}.mlp.gate_proj"},
      {Slot::GateUp, "model.layers.{l}.mlp.up_proj"},
      {Slot::Down, "model.layers.{l}.mlp.down_proj"},
      {Slot::DownNorm, "model.layers.{l}.mlp.ffn_sub_norm"},
      {Slot::Router, "model.layers.{l}.mlp.gate"},
      {Slot::RouterChoiceBias, "model.layers.{l}.mlp.gate.e_score_correction_bias"},
      {Slot::ExpertGateUp, "model.layers.{l}.mlp.experts.{e}.gate_proj"},
      {Slot::ExpertGateUp, "model.layers.{l}.mlp.experts.{e}.up_proj"},
      {Slot::ExpertGateUp, "model.layers.{l}.mlp.experts.gate_up_proj"},
      {Slot::ExpertDown, "model.layers.{l}.mlp.experts.{e}.down_proj"},
      {Slot::ExpertDown, "model.layers.{l}.mlp.experts.down_proj"},
      {Slot::SharedGateUp, "model.layers.{l}.mlp.shared_experts.gate_proj"},
      {Slot::SharedGateUp, "model.layers.{l}.mlp.shared_experts.up_proj"},
      {Slot::SharedDown, "model.layers.{l}.mlp.shared_experts.down_proj"},
      {Slot::SharedGateUp, "model.layers.{l}.mlp.shared_expert.gate_proj"},
      {Slot::SharedGateUp, "model.layers.{l}.mlp.shared_expert.up_proj"},
      {Slot::SharedDown, "model.layers.{l}.mlp.shared_expert.down_proj"},
      {Slot::SharedGate, "model.layers.{l}.mlp.shared_expert_gate"},
      {Slot::XieluAlphaP, "model.layers.{l}.mlp.act_fn.alpha_p"},
      {Slot::XieluAlphaN, "model.layers.{l}.mlp.act_fn.alpha_n"},
      {Slot::XieluBeta, "model.layers.{l}.mlp.act_fn.beta"},
      {Slot::LayerInputTable, "model.embed_tokens_per_layer"},
      {Slot::LayerInputProjection, "model.per_layer_model_projection"},
      {Slot::LayerInputProjectionNorm, "model.per_layer_projection_norm"},
      {Slot::LayerInputGate, "model.layers.{l}.per_layer_input_gate"},
      {Slot::LayerInputOut, "model.layers.{l}.per_layer_projection"},
      {Slot::LayerInputNorm, "model.layers.{l}.post_per_layer_input_norm"},
      {Slot::LayerScale, "model.layers.{l}.layer_scalar"},
  };
  return names;
}

const WeightNames& gguf_names() {
  static const WeightNames names = with_layer_inputs({
      {Slot::TokenEmbedding, "token_embd"},
      {Slot::PositionEmbedding, "position_embd"},
      {Slot::EmbeddingNorm, "token_embd_norm"},
      {Slot::OutputNorm, "output_norm"},
      {Slot::Output, "output"},
      {Slot::MixerNorm, "blk.{l}.attn_norm"},
      {Slot::MixerPostNorm, "blk.{l}.post_attention_norm"},
      {Slot::FfnNorm, "blk.{l}.ffn_norm"},
      {Slot::FfnNorm, "blk.{l}.post_attention_norm"},  // where there is no other norm after the mixer
      {Slot::FfnPostNorm, "blk.{l}.post_ffw_norm"},
      {Slot::Qkv, "blk.{l}.attn_qkv"},
      {Slot::Qkv, "blk.{l}.attn_q"},
      {Slot::Qkv, "blk.{l}.attn_k"},
      {Slot::Qkv, "blk.{l}.attn_v"},
      {Slot::Qkk, "blk.{l}.attn_q"},
      {Slot::Qkk, "blk.{l}.attn_k"},
      {Slot::Qkk, "blk.{l}.attn_k"},
      {Slot::AttentionOut, "blk.{l}.attn_output"},
      {Slot::AttentionOutNorm, "blk.{l}.attn_sub_norm"},
      {Slot::QNorm, "blk.{l}.attn_q_norm"},
      {Slot::KNorm, "blk.{l}.attn_k_norm"},
      {Slot::Sinks, "blk.{l}.attn_sinks"},
      {Slot::AttentionGate, "blk.{l}.attn_gate"},
      {Slot::QueryDown, "blk.{l}.attn_q_a"},
      {Slot::QueryDownNorm, "blk.{l}.attn_q_a_norm"},
      {Slot::QueryUp, "blk.{l}.attn_q_b"},
      {Slot::QueryUp, "blk.{l}.attn_q"},
      {Slot::LatentDown, "blk.{l}.attn_kv_a_mqa"},
      {Slot::LatentNorm, "blk.{l}.attn_kv_a_norm"},
      {Slot::LatentUp, "blk.{l}.attn_kv_b"},
      {Slot::LatentKeyUp, "blk.{l}.attn_k_b"},
      {Slot::LatentValueUp, "blk.{l}.attn_v_b"},
      {Slot::GateUp, "blk.{l}.ffn_gate"},
      {Slot::GateUp, "blk.{l}.ffn_up"},
      {Slot::Down, "blk.{l}.ffn_down"},
      {Slot::DownNorm, "blk.{l}.ffn_sub_norm"},
      {Slot::Router, "blk.{l}.ffn_gate_inp"},
      {Slot::RouterChoiceBias, "blk.{l}.exp_probs_b.bias"},
      {Slot::RouterChoiceBias, "blk.{l}.exp_probs_b"},
      {Slot::ExpertGateUp, "blk.{l}.ffn_gate_exps"},
      {Slot::ExpertGateUp, "blk.{l}.ffn_up_exps"},
      {Slot::ExpertGateUp, "blk.{l}.ffn_gate_up_exps"},
      {Slot::ExpertDown, "blk.{l}.ffn_down_exps"},
      {Slot::ExpertGateUp, "blk.{l}.ffn_gate.{e}"},
      {Slot::ExpertGateUp, "blk.{l}.ffn_up.{e}"},
      {Slot::ExpertDown, "blk.{l}.ffn_down.{e}"},
      {Slot::SharedGateUp, "blk.{l}.ffn_gate_shexp"},
      {Slot::SharedGateUp, "blk.{l}.ffn_up_shexp"},
      {Slot::SharedDown, "blk.{l}.ffn_down_shexp"},
      {Slot::SharedGate, "blk.{l}.ffn_gate_inp_shexp"},
      {Slot::RopeFactors, "rope_freqs"},
  });
  return names;
}

}  // namespace sluice::models
