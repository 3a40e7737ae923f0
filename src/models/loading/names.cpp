#include "models/loading/names.h"

#include <algorithm>
#include <array>

namespace sluice::models {

namespace {

constexpr std::array<std::string_view, 81> kSlotNames{
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
    "router input scale",
    "router weight scale",
    "dense post-norm",
    "expert norm",
    "expert post-norm",
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
    "stream projections",
    "stream unprojections",
    "stream router",
    "stream router norm",
    "stream prediction",
    "stream correction",
    "stream scale",
    "laurel left",
    "laurel right",
    "laurel norm",
    "rope factors",
    "rope factors of long sequences",
    "mixer input",
    "convolution",
    "mixer gate down",
    "mixer gate",
    "decay down",
    "decay",
    "beta",
    "decay rate",
    "decay bias",
    "scan skip",
    "scan parameters",
    "scan step norm",
    "scan b norm",
    "scan c norm",
    "scan step",
    "mixer head norm",
    "mixer output",
};

WeightNames with_layer_inputs(const WeightNames& names) {
  return names.with({{WeightSlot::LayerInputTable, "per_layer_token_embd"},
                     {WeightSlot::LayerInputProjection, "per_layer_model_proj"},
                     {WeightSlot::LayerInputProjectionNorm, "per_layer_proj_norm"},
                     {WeightSlot::LayerInputGate, "blk.{l}.inp_gate"},
                     {WeightSlot::LayerInputOut, "blk.{l}.proj"},
                     {WeightSlot::LayerInputNorm, "blk.{l}.post_norm"},
                     {WeightSlot::LayerScale, "blk.{l}.layer_output_scale"},
                     {WeightSlot::StreamProjections, "altup_proj"},
                     {WeightSlot::StreamUnprojections, "altup_unembd_proj"},
                     {WeightSlot::StreamRouter, "blk.{l}.altup_router"},
                     {WeightSlot::StreamRouterNorm, "blk.{l}.altup_router_norm"},
                     {WeightSlot::StreamPrediction, "blk.{l}.altup_predict_coef"},
                     {WeightSlot::StreamCorrection, "blk.{l}.altup_correct_coef"},
                     {WeightSlot::StreamScale, "blk.{l}.altup_correct_scale"},
                     {WeightSlot::LaurelLeft, "blk.{l}.laurel_l"},
                     {WeightSlot::LaurelRight, "blk.{l}.laurel_r"},
                     {WeightSlot::LaurelNorm, "blk.{l}.laurel_post_norm"}});
}

}  // namespace

std::string_view name(WeightSlot slot) {
  return kSlotNames[static_cast<size_t>(slot)];
}

WeightNames WeightNames::with(std::span<const NameRow> rows) const {
  WeightNames result;
  const auto replaced = [&](WeightSlot slot) {
    return std::any_of(rows.begin(), rows.end(), [&](const NameRow& row) { return row.slot == slot; });
  };
  for (const NameRow& row : rows_)
    if (!replaced(row.slot)) result.rows_.push_back(row);
  result.rows_.insert(result.rows_.end(), rows.begin(), rows.end());
  return result;
}

std::vector<NameRow> WeightNames::rows(WeightSlot slot) const {
  std::vector<NameRow> found;
  for (const NameRow& row : rows_)
    if (row.slot == slot) found.push_back(row);
  return found;
}

WeightNames WeightNames::folded(std::initializer_list<WeightSlot> slots, Fold fold) const {
  WeightNames result = *this;
  for (NameRow& row : result.rows_)
    if (std::find(slots.begin(), slots.end(), row.slot) != slots.end()) row.fold = fold;
  return result;
}

const WeightNames& hugging_face_names() {
  static const WeightNames names = with_recurrent({
      {WeightSlot::TokenEmbedding, "model.embed_tokens"},
      {WeightSlot::OutputNorm, "model.norm"},
      {WeightSlot::Output, "lm_head"},
      {WeightSlot::MixerNorm, "model.layers.{l}.input_layernorm"},
      {WeightSlot::FfnNorm, "model.layers.{l}.post_attention_layernorm"},
      {WeightSlot::Qkv, "model.layers.{l}.self_attn.qkv_proj"},
      {WeightSlot::Qkv, "model.layers.{l}.self_attn.q_proj"},
      {WeightSlot::Qkv, "model.layers.{l}.self_attn.k_proj"},
      {WeightSlot::Qkv, "model.layers.{l}.self_attn.v_proj"},
      {WeightSlot::Qkk, "model.layers.{l}.self_attn.q_proj"},
      {WeightSlot::Qkk, "model.layers.{l}.self_attn.k_proj"},
      {WeightSlot::Qkk, "model.layers.{l}.self_attn.k_proj"},
      {WeightSlot::AttentionOut, "model.layers.{l}.self_attn.o_proj"},
      {WeightSlot::AttentionOutNorm, "model.layers.{l}.self_attn.attn_sub_norm"},
      {WeightSlot::QNorm, "model.layers.{l}.self_attn.q_norm"},
      {WeightSlot::KNorm, "model.layers.{l}.self_attn.k_norm"},
      {WeightSlot::Sinks, "model.layers.{l}.self_attn.sinks"},
      {WeightSlot::AttentionGate, "model.layers.{l}.self_attn.gate_proj"},
      {WeightSlot::QueryDown, "model.layers.{l}.self_attn.q_a_proj"},
      {WeightSlot::QueryDownNorm, "model.layers.{l}.self_attn.q_a_layernorm"},
      {WeightSlot::QueryUp, "model.layers.{l}.self_attn.q_b_proj"},
      {WeightSlot::QueryUp, "model.layers.{l}.self_attn.q_proj"},
      {WeightSlot::LatentDown, "model.layers.{l}.self_attn.kv_a_proj_with_mqa"},
      {WeightSlot::LatentNorm, "model.layers.{l}.self_attn.kv_a_layernorm"},
      {WeightSlot::LatentUp, "model.layers.{l}.self_attn.kv_b_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.mlp.gate_up_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.mlp.gate_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.mlp.up_proj"},
      {WeightSlot::Down, "model.layers.{l}.mlp.down_proj"},
      {WeightSlot::DownNorm, "model.layers.{l}.mlp.ffn_sub_norm"},
      {WeightSlot::Router, "model.layers.{l}.mlp.gate"},
      {WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.gate.e_score_correction_bias"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.mlp.experts.{e}.gate_proj"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.mlp.experts.{e}.up_proj"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.mlp.experts.gate_up_proj"},
      {WeightSlot::ExpertDown, "model.layers.{l}.mlp.experts.{e}.down_proj"},
      {WeightSlot::ExpertDown, "model.layers.{l}.mlp.experts.down_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_experts.gate_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_experts.up_proj"},
      {WeightSlot::SharedDown, "model.layers.{l}.mlp.shared_experts.down_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_expert.gate_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_expert.up_proj"},
      {WeightSlot::SharedDown, "model.layers.{l}.mlp.shared_expert.down_proj"},
      {WeightSlot::SharedGate, "model.layers.{l}.mlp.shared_expert_gate"},
      {WeightSlot::XieluAlphaP, "model.layers.{l}.mlp.act_fn.alpha_p"},
      {WeightSlot::XieluAlphaN, "model.layers.{l}.mlp.act_fn.alpha_n"},
      {WeightSlot::XieluBeta, "model.layers.{l}.mlp.act_fn.beta"},
      {WeightSlot::LayerInputTable, "model.embed_tokens_per_layer"},
      {WeightSlot::LayerInputProjection, "model.per_layer_model_projection"},
      {WeightSlot::LayerInputProjectionNorm, "model.per_layer_projection_norm"},
      {WeightSlot::LayerInputGate, "model.layers.{l}.per_layer_input_gate"},
      {WeightSlot::LayerInputOut, "model.layers.{l}.per_layer_projection"},
      {WeightSlot::LayerInputNorm, "model.layers.{l}.post_per_layer_input_norm"},
      {WeightSlot::LayerScale, "model.layers.{l}.layer_scalar"},
      // Gemma 3n
      {WeightSlot::StreamProjections, "model.altup_projections.{e}"},
      {WeightSlot::StreamUnprojections, "model.altup_unembed_projections.{e}"},
      {WeightSlot::StreamRouter, "model.layers.{l}.altup.modality_router"},
      {WeightSlot::StreamRouterNorm, "model.layers.{l}.altup.router_norm"},
      {WeightSlot::StreamPrediction, "model.layers.{l}.altup.prediction_coefs"},
      {WeightSlot::StreamCorrection, "model.layers.{l}.altup.correction_coefs"},
      {WeightSlot::StreamScale, "model.layers.{l}.altup.correct_output_scale"},
      {WeightSlot::LaurelLeft, "model.layers.{l}.laurel.linear_left"},
      {WeightSlot::LaurelRight, "model.layers.{l}.laurel.linear_right"},
      {WeightSlot::LaurelNorm, "model.layers.{l}.laurel.post_laurel_norm"},
      // Gemma 4
      {WeightSlot::Router, "model.layers.{l}.router.proj"},
      {WeightSlot::RouterInputScale, "model.layers.{l}.router.scale"},
      {WeightSlot::RouterWeightScale, "model.layers.{l}.router.per_expert_scale"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.experts.gate_up_proj"},
      {WeightSlot::ExpertDown, "model.layers.{l}.experts.down_proj"},
      {WeightSlot::DensePostNorm, "model.layers.{l}.post_feedforward_layernorm_1"},
      {WeightSlot::ExpertNorm, "model.layers.{l}.pre_feedforward_layernorm_2"},
      {WeightSlot::ExpertPostNorm, "model.layers.{l}.post_feedforward_layernorm_2"},
      // Laguna, Step 3.5, MiMo V2 and MiniMax M3
      {WeightSlot::AttentionGate, "model.layers.{l}.self_attn.g_proj"},
      {WeightSlot::Sinks, "model.layers.{l}.self_attn.attention_sink_bias"},
      {WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.experts.e_score_correction_bias"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_experts.gate_up_proj"},
      {WeightSlot::Router, "model.layers.{l}.moe.gate"},
      {WeightSlot::RouterChoiceBias, "model.layers.{l}.moe.router_bias"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.moe.gate_proj"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.moe.up_proj"},
      {WeightSlot::ExpertDown, "model.layers.{l}.moe.down_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.share_expert.gate_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.share_expert.up_proj"},
      {WeightSlot::SharedDown, "model.layers.{l}.share_expert.down_proj"},
      // Mamba 2 and Nemotron-H
      {WeightSlot::TokenEmbedding, "backbone.embeddings"},
      {WeightSlot::OutputNorm, "backbone.norm_f"},
      {WeightSlot::MixerNorm, "backbone.layers.{l}.norm"},
      {WeightSlot::Qkv, "backbone.layers.{l}.mixer.q_proj"},
      {WeightSlot::Qkv, "backbone.layers.{l}.mixer.k_proj"},
      {WeightSlot::Qkv, "backbone.layers.{l}.mixer.v_proj"},
      {WeightSlot::AttentionOut, "backbone.layers.{l}.mixer.o_proj"},
      {WeightSlot::GateUp, "backbone.layers.{l}.mixer.up_proj"},
      {WeightSlot::Down, "backbone.layers.{l}.mixer.down_proj"},
      {WeightSlot::Router, "backbone.layers.{l}.mixer.gate"},
      {WeightSlot::RouterChoiceBias, "backbone.layers.{l}.mixer.gate.e_score_correction_bias"},
      {WeightSlot::ExpertGateUp, "backbone.layers.{l}.mixer.experts.{e}.up_proj"},
      {WeightSlot::ExpertDown, "backbone.layers.{l}.mixer.experts.{e}.down_proj"},
      {WeightSlot::SharedGateUp, "backbone.layers.{l}.mixer.shared_experts.up_proj"},
      {WeightSlot::SharedDown, "backbone.layers.{l}.mixer.shared_experts.down_proj"},
      // Bamba and Falcon-H1
      {WeightSlot::OutputNorm, "model.final_layernorm"},
      {WeightSlot::FfnNorm, "model.layers.{l}.pre_ff_layernorm"},
      {WeightSlot::GateUp, "model.layers.{l}.feed_forward.gate_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.feed_forward.up_proj"},
      {WeightSlot::Down, "model.layers.{l}.feed_forward.down_proj"},
      // Jamba
      {WeightSlot::Router, "model.layers.{l}.feed_forward.router"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.feed_forward.experts.{e}.gate_proj"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.feed_forward.experts.{e}.up_proj"},
      {WeightSlot::ExpertDown, "model.layers.{l}.feed_forward.experts.{e}.down_proj"},
      // LFM2
      {WeightSlot::OutputNorm, "model.embedding_norm"},
      {WeightSlot::MixerNorm, "model.layers.{l}.operator_norm"},
      {WeightSlot::FfnNorm, "model.layers.{l}.ffn_norm"},
      {WeightSlot::AttentionOut, "model.layers.{l}.self_attn.out_proj"},
      {WeightSlot::QNorm, "model.layers.{l}.self_attn.q_layernorm"},
      {WeightSlot::KNorm, "model.layers.{l}.self_attn.k_layernorm"},
      {WeightSlot::GateUp, "model.layers.{l}.feed_forward.w1"},
      {WeightSlot::GateUp, "model.layers.{l}.feed_forward.w3"},
      {WeightSlot::Down, "model.layers.{l}.feed_forward.w2"},
      {WeightSlot::Router, "model.layers.{l}.feed_forward.gate"},
      {WeightSlot::RouterChoiceBias, "model.layers.{l}.feed_forward.expert_bias"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.feed_forward.experts.{e}.w1"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.feed_forward.experts.{e}.w3"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.feed_forward.experts.gate_up_proj"},
      {WeightSlot::ExpertDown, "model.layers.{l}.feed_forward.experts.{e}.w2"},
      {WeightSlot::ExpertDown, "model.layers.{l}.feed_forward.experts.down_proj"},
  });
  return names;
}

const WeightNames& gguf_names() {
  static const WeightNames names = with_recurrent_gguf(with_layer_inputs({
      {WeightSlot::TokenEmbedding, "token_embd"},
      {WeightSlot::PositionEmbedding, "position_embd"},
      {WeightSlot::EmbeddingNorm, "token_embd_norm"},
      {WeightSlot::OutputNorm, "output_norm"},
      {WeightSlot::Output, "output"},
      {WeightSlot::MixerNorm, "blk.{l}.attn_norm"},
      {WeightSlot::MixerPostNorm, "blk.{l}.post_attention_norm"},
      {WeightSlot::FfnNorm, "blk.{l}.ffn_norm"},
      {WeightSlot::FfnNorm, "blk.{l}.post_attention_norm"},  // where there is no other norm after the mixer
      {WeightSlot::FfnPostNorm, "blk.{l}.post_ffw_norm"},
      {WeightSlot::Qkv, "blk.{l}.attn_qkv"},
      {WeightSlot::Qkv, "blk.{l}.attn_q"},
      {WeightSlot::Qkv, "blk.{l}.attn_k"},
      {WeightSlot::Qkv, "blk.{l}.attn_v"},
      {WeightSlot::Qkk, "blk.{l}.attn_q"},
      {WeightSlot::Qkk, "blk.{l}.attn_k"},
      {WeightSlot::Qkk, "blk.{l}.attn_k"},
      {WeightSlot::AttentionOut, "blk.{l}.attn_output"},
      {WeightSlot::AttentionOutNorm, "blk.{l}.attn_sub_norm"},
      {WeightSlot::QNorm, "blk.{l}.attn_q_norm"},
      {WeightSlot::KNorm, "blk.{l}.attn_k_norm"},
      {WeightSlot::Sinks, "blk.{l}.attn_sinks"},
      {WeightSlot::AttentionGate, "blk.{l}.attn_gate"},
      {WeightSlot::QueryDown, "blk.{l}.attn_q_a"},
      {WeightSlot::QueryDownNorm, "blk.{l}.attn_q_a_norm"},
      {WeightSlot::QueryUp, "blk.{l}.attn_q_b"},
      {WeightSlot::QueryUp, "blk.{l}.attn_q"},
      {WeightSlot::LatentDown, "blk.{l}.attn_kv_a_mqa"},
      {WeightSlot::LatentNorm, "blk.{l}.attn_kv_a_norm"},
      {WeightSlot::LatentUp, "blk.{l}.attn_kv_b"},
      {WeightSlot::LatentKeyUp, "blk.{l}.attn_k_b"},
      {WeightSlot::LatentValueUp, "blk.{l}.attn_v_b"},
      {WeightSlot::GateUp, "blk.{l}.ffn_gate"},
      {WeightSlot::GateUp, "blk.{l}.ffn_up"},
      {WeightSlot::Down, "blk.{l}.ffn_down"},
      {WeightSlot::DownNorm, "blk.{l}.ffn_sub_norm"},
      {WeightSlot::Router, "blk.{l}.ffn_gate_inp"},
      {WeightSlot::RouterChoiceBias, "blk.{l}.exp_probs_b.bias"},
      {WeightSlot::RouterChoiceBias, "blk.{l}.exp_probs_b"},
      {WeightSlot::RouterInputScale, "blk.{l}.ffn_gate_inp.scale"},
      {WeightSlot::RouterWeightScale, "blk.{l}.ffn_down_exps.scale"},
      {WeightSlot::DensePostNorm, "blk.{l}.post_ffw_norm_1"},
      {WeightSlot::ExpertNorm, "blk.{l}.pre_ffw_norm_2"},
      {WeightSlot::ExpertPostNorm, "blk.{l}.post_ffw_norm_2"},
      {WeightSlot::ExpertGateUp, "blk.{l}.ffn_gate_exps"},
      {WeightSlot::ExpertGateUp, "blk.{l}.ffn_up_exps"},
      {WeightSlot::ExpertGateUp, "blk.{l}.ffn_gate_up_exps"},
      {WeightSlot::ExpertDown, "blk.{l}.ffn_down_exps"},
      {WeightSlot::ExpertGateUp, "blk.{l}.ffn_gate.{e}"},
      {WeightSlot::ExpertGateUp, "blk.{l}.ffn_up.{e}"},
      {WeightSlot::ExpertDown, "blk.{l}.ffn_down.{e}"},
      {WeightSlot::SharedGateUp, "blk.{l}.ffn_gate_shexp"},
      {WeightSlot::SharedGateUp, "blk.{l}.ffn_up_shexp"},
      {WeightSlot::SharedDown, "blk.{l}.ffn_down_shexp"},
      {WeightSlot::SharedGate, "blk.{l}.ffn_gate_inp_shexp"},
      {WeightSlot::RopeFactors, "rope_freqs"},
  }));
  return names;
}

}  // namespace sluice::models
