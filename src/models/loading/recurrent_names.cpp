// The names of what mixers that keep a state are made of.
#include "models/loading/names.h"

namespace sluice::models {

WeightNames with_recurrent(const WeightNames& names) {
  return names.with({
      {WeightSlot::MixerIn, "model.layers.{l}.conv.in_proj"},
      {WeightSlot::MixerIn, "model.layers.{l}.mamba.in_proj"},
      {WeightSlot::MixerIn, "backbone.layers.{l}.mixer.in_proj"},
      {WeightSlot::MixerIn, "model.layers.{l}.linear_attn.in_proj_qkv"},
      {WeightSlot::MixerIn, "model.layers.{l}.linear_attn.in_proj_qkvz", Fold::PackedQkv},
      {WeightSlot::MixerIn, "model.layers.{l}.linear_attn.q_proj"},
      {WeightSlot::MixerIn, "model.layers.{l}.linear_attn.k_proj"},
      {WeightSlot::MixerIn, "model.layers.{l}.linear_attn.v_proj"},
      {WeightSlot::ConvKernel, "model.layers.{l}.conv.conv"},
      {WeightSlot::ConvKernel, "model.layers.{l}.mamba.conv1d"},
      {WeightSlot::ConvKernel, "backbone.layers.{l}.mixer.conv1d"},
      {WeightSlot::ConvKernel, "model.layers.{l}.linear_attn.conv1d"},
      {WeightSlot::ConvKernel, "model.layers.{l}.linear_attn.q_conv1d"},
      {WeightSlot::ConvKernel, "model.layers.{l}.linear_attn.k_conv1d"},
      {WeightSlot::ConvKernel, "model.layers.{l}.linear_attn.v_conv1d"},
      {WeightSlot::MixerGate, "model.layers.{l}.linear_attn.in_proj_z"},
      {WeightSlot::MixerGate, "model.layers.{l}.linear_attn.in_proj_qkvz", Fold::PackedGates},
      {WeightSlot::MixerGate, "model.layers.{l}.linear_attn.g_proj"},
      {WeightSlot::Decay, "model.layers.{l}.linear_attn.in_proj_a"},
      {WeightSlot::Decay, "model.layers.{l}.linear_attn.in_proj_ba", Fold::PackedDecays},
      {WeightSlot::Decay, "model.layers.{l}.linear_attn.a_proj"},
      {WeightSlot::Beta, "model.layers.{l}.linear_attn.in_proj_b"},
      {WeightSlot::Beta, "model.layers.{l}.linear_attn.in_proj_ba", Fold::PackedBetas},
      {WeightSlot::Beta, "model.layers.{l}.linear_attn.b_proj"},
      {WeightSlot::DecayRate, "model.layers.{l}.linear_attn.A_log", Fold::NegativeExp},
      {WeightSlot::DecayRate, "model.layers.{l}.mamba.A_log", Fold::NegativeExp},
      {WeightSlot::DecayRate, "backbone.layers.{l}.mixer.A_log", Fold::NegativeExp},
      {WeightSlot::DecayBias, "model.layers.{l}.linear_attn.dt_bias"},
      {WeightSlot::DecayBias, "model.layers.{l}.mamba.dt_bias"},
      {WeightSlot::DecayBias, "backbone.layers.{l}.mixer.dt_bias"},
      {WeightSlot::ScanSkip, "model.layers.{l}.mamba.D"},
      {WeightSlot::ScanSkip, "backbone.layers.{l}.mixer.D"},
      {WeightSlot::ScanParameters, "model.layers.{l}.mamba.x_proj"},
      {WeightSlot::ScanStepNorm, "model.layers.{l}.mamba.dt_layernorm"},
      {WeightSlot::ScanBNorm, "model.layers.{l}.mamba.b_layernorm"},
      {WeightSlot::ScanCNorm, "model.layers.{l}.mamba.c_layernorm"},
      {WeightSlot::ScanStep, "model.layers.{l}.mamba.dt_proj"},
      {WeightSlot::MixerHeadNorm, "model.layers.{l}.linear_attn.norm"},
      {WeightSlot::MixerHeadNorm, "model.layers.{l}.linear_attn.o_norm"},
      {WeightSlot::MixerHeadNorm, "model.layers.{l}.mamba.norm"},
      {WeightSlot::MixerHeadNorm, "backbone.layers.{l}.mixer.norm"},
      {WeightSlot::MixerOut, "model.layers.{l}.conv.out_proj"},
      {WeightSlot::MixerOut, "model.layers.{l}.mamba.out_proj"},
      {WeightSlot::MixerOut, "backbone.layers.{l}.mixer.out_proj"},
      {WeightSlot::MixerOut, "model.layers.{l}.linear_attn.out_proj"},
      {WeightSlot::MixerOut, "model.layers.{l}.linear_attn.o_proj"},
  });
}

WeightNames with_recurrent_gguf(const WeightNames& names) {
  return names.with({
      {WeightSlot::MixerIn, "blk.{l}.shortconv.in_proj"},
      {WeightSlot::MixerIn, "blk.{l}.ssm_in"},
      {WeightSlot::MixerIn, "blk.{l}.attn_qkv"},
      {WeightSlot::ConvKernel, "blk.{l}.shortconv.conv"},
      {WeightSlot::ConvKernel, "blk.{l}.ssm_conv1d"},
      {WeightSlot::MixerGate, "blk.{l}.attn_gate"},
      {WeightSlot::Decay, "blk.{l}.ssm_alpha"},
      {WeightSlot::Beta, "blk.{l}.ssm_beta"},
      {WeightSlot::Decay, "blk.{l}.ssm_ba", Fold::PackedDecays},
      {WeightSlot::Beta, "blk.{l}.ssm_ba", Fold::PackedBetas},
      {WeightSlot::DecayRate, "blk.{l}.ssm_a"},
      {WeightSlot::DecayBias, "blk.{l}.ssm_dt.bias"},
      {WeightSlot::ScanSkip, "blk.{l}.ssm_d"},
      {WeightSlot::ScanParameters, "blk.{l}.ssm_x"},
      {WeightSlot::ScanStepNorm, "blk.{l}.ssm_dt_norm"},
      {WeightSlot::ScanBNorm, "blk.{l}.ssm_b_norm"},
      {WeightSlot::ScanCNorm, "blk.{l}.ssm_c_norm"},
      {WeightSlot::ScanStep, "blk.{l}.ssm_dt"},
      {WeightSlot::MixerHeadNorm, "blk.{l}.ssm_norm"},
      {WeightSlot::MixerOut, "blk.{l}.shortconv.out_proj"},
      {WeightSlot::MixerOut, "blk.{l}.ssm_out"},
  });
}

WeightNames kimi_linear_names() {
  return hugging_face_names().with({
      {WeightSlot::MixerIn, "model.layers.{l}.self_attn.q_proj"},
      {WeightSlot::MixerIn, "model.layers.{l}.self_attn.k_proj"},
      {WeightSlot::MixerIn, "model.layers.{l}.self_attn.v_proj"},
      {WeightSlot::ConvKernel, "model.layers.{l}.self_attn.q_conv1d"},
      {WeightSlot::ConvKernel, "model.layers.{l}.self_attn.k_conv1d"},
      {WeightSlot::ConvKernel, "model.layers.{l}.self_attn.v_conv1d"},
      {WeightSlot::MixerGateDown, "model.layers.{l}.self_attn.g_a_proj"},
      {WeightSlot::MixerGate, "model.layers.{l}.self_attn.g_b_proj"},
      {WeightSlot::DecayDown, "model.layers.{l}.self_attn.f_a_proj"},
      {WeightSlot::Decay, "model.layers.{l}.self_attn.f_b_proj"},
      {WeightSlot::Beta, "model.layers.{l}.self_attn.b_proj"},
      {WeightSlot::DecayRate, "model.layers.{l}.self_attn.A_log", Fold::NegativeExp},
      {WeightSlot::DecayBias, "model.layers.{l}.self_attn.dt_bias"},
      {WeightSlot::MixerHeadNorm, "model.layers.{l}.self_attn.o_norm"},
      {WeightSlot::MixerOut, "model.layers.{l}.self_attn.o_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.mlp.gate_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.mlp.up_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.block_sparse_moe.gate_proj"},
      {WeightSlot::GateUp, "model.layers.{l}.block_sparse_moe.up_proj"},
      {WeightSlot::Down, "model.layers.{l}.mlp.down_proj"},
      {WeightSlot::Down, "model.layers.{l}.block_sparse_moe.down_proj"},
      {WeightSlot::Router, "model.layers.{l}.block_sparse_moe.gate"},
      {WeightSlot::RouterChoiceBias, "model.layers.{l}.block_sparse_moe.gate.e_score_correction_bias"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w1"},
      {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3"},
      {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.block_sparse_moe.shared_experts.gate_proj"},
      {WeightSlot::SharedGateUp, "model.layers.{l}.block_sparse_moe.shared_experts.up_proj"},
      {WeightSlot::SharedDown, "model.layers.{l}.block_sparse_moe.shared_experts.down_proj"},
  });
}

WeightNames kimi_linear_gguf_names() {
  return gguf_names().with({
      {WeightSlot::MixerIn, "blk.{l}.attn_q"},
      {WeightSlot::MixerIn, "blk.{l}.attn_k"},
      {WeightSlot::MixerIn, "blk.{l}.attn_v"},
      {WeightSlot::ConvKernel, "blk.{l}.ssm_conv1d_q"},
      {WeightSlot::ConvKernel, "blk.{l}.ssm_conv1d_k"},
      {WeightSlot::ConvKernel, "blk.{l}.ssm_conv1d_v"},
      {WeightSlot::MixerGateDown, "blk.{l}.ssm_g_a"},
      {WeightSlot::MixerGate, "blk.{l}.ssm_g_b"},
      {WeightSlot::DecayDown, "blk.{l}.ssm_f_a"},
      {WeightSlot::Decay, "blk.{l}.ssm_f_b"},
      {WeightSlot::MixerOut, "blk.{l}.attn_output"},
  });
}

}  // namespace sluice::models
