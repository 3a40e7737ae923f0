// BioGPT: OPT's shape with scaled embeddings and a GELU feed-forward.
#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kBiogptHuggingFace[] = {"BioGptForCausalLM"};

ModelSpec build_biogpt(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.norm_eps = 1e-5f;
  spec.positions = Positions::Learned;
  spec.position_offset = 2;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  if (c.flag_or("scale_embedding", true)) spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  drop_all_ropes(spec);
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "gelu");
  spec.names = {{WeightSlot::TokenEmbedding, "biogpt.embed_tokens"},
                {WeightSlot::PositionEmbedding, "biogpt.embed_positions"},
                {WeightSlot::OutputNorm, "biogpt.layer_norm"},
                {WeightSlot::Output, "output_projection"},
                {WeightSlot::MixerNorm, "biogpt.layers.{l}.self_attn_layer_norm"},
                {WeightSlot::FfnNorm, "biogpt.layers.{l}.final_layer_norm"},
                {WeightSlot::Qkv, "biogpt.layers.{l}.self_attn.q_proj"},
                {WeightSlot::Qkv, "biogpt.layers.{l}.self_attn.k_proj"},
                {WeightSlot::Qkv, "biogpt.layers.{l}.self_attn.v_proj"},
                {WeightSlot::AttentionOut, "biogpt.layers.{l}.self_attn.out_proj"},
                {WeightSlot::GateUp, "biogpt.layers.{l}.fc1"},
                {WeightSlot::Down, "biogpt.layers.{l}.fc2"}};
  return spec;
}

}  // namespace

extern const Architecture biogpt{kBiogptHuggingFace, {}, build_biogpt};

}  // namespace sluice::models::arch
