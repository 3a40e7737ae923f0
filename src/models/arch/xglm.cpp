// XGLM: layer norms, scaled embeddings, positions as sines and cosines from the third row on.
#include <fmt/format.h>

#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kXglmHuggingFace[] = {"XGLMForCausalLM"};

constexpr int kMostPositions = 1 << 20;  // their table is computed

ModelSpec build_xglm(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (spec.context > kMostPositions)
    c.fail(fmt::format("'max_position_embeddings' is {}, limit {}", spec.context, kMostPositions));
  spec.norm = NormKind::Layer;
  spec.norm_eps = 1e-5f;
  spec.positions = Positions::Sinusoidal;
  spec.position_offset = 2;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  if (c.flag_or("scale_embedding", true)) spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  drop_all_ropes(spec);
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "gelu");
  spec.names = spec.names.with({{WeightSlot::OutputNorm, "model.layer_norm"},
                                {WeightSlot::MixerNorm, "model.layers.{l}.self_attn_layer_norm"},
                                {WeightSlot::FfnNorm, "model.layers.{l}.final_layer_norm"},
                                {WeightSlot::AttentionOut, "model.layers.{l}.self_attn.out_proj"},
                                {WeightSlot::GateUp, "model.layers.{l}.fc1"},
                                {WeightSlot::Down, "model.layers.{l}.fc2"}});
  return spec;
}

}  // namespace

extern const Architecture xglm{kXglmHuggingFace, {}, build_xglm};

}  // namespace sluice::models::arch
