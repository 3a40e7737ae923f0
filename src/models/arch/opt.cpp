// OPT: layer norms (before mixer and feed-forward, or after the sums), learned positions from the third row on, a
// plain ReLU feed-forward; the embedding may be narrower than the layers.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOptHuggingFace[] = {"OPTForCausalLM"};

ModelSpec build_opt(Config& c) {
  ModelSpec spec = decoder_spec(c);
  const int width = c.size_or("word_embed_proj_dim", spec.dim);
  if (width == 0) c.fail("'word_embed_proj_dim' is 0");
  if (width != spec.dim) spec.embedding_dim = width;
  const bool before = c.flag_or("do_layer_norm_before", true);
  if (!before) use_wiring(spec, Wiring::SumNorm);
  spec.output_norm = before && !c.flag_or("_remove_final_layer_norm", false);
  spec.norm_gain = c.flag_or("layer_norm_elementwise_affine", true);
  spec.norm = NormKind::Layer;
  spec.norm_eps = 1e-5f;
  spec.positions = Positions::Learned;
  spec.position_offset = 2;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  drop_all_ropes(spec);
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "relu");
  spec.names = {{WeightSlot::TokenEmbedding, "model.decoder.embed_tokens"},
                {WeightSlot::EmbeddingIn, "model.decoder.project_in"},
                {WeightSlot::EmbeddingOut, "model.decoder.project_out"},
                {WeightSlot::PositionEmbedding, "model.decoder.embed_positions"},
                {WeightSlot::OutputNorm, "model.decoder.final_layer_norm"},
                {WeightSlot::Output, "lm_head"},
                {WeightSlot::MixerNorm, "model.decoder.layers.{l}.self_attn_layer_norm"},
                {WeightSlot::MixerPostNorm, "model.decoder.layers.{l}.self_attn_layer_norm"},
                {WeightSlot::FfnNorm, "model.decoder.layers.{l}.final_layer_norm"},
                {WeightSlot::FfnPostNorm, "model.decoder.layers.{l}.final_layer_norm"},
                {WeightSlot::Qkv, "model.decoder.layers.{l}.self_attn.q_proj"},
                {WeightSlot::Qkv, "model.decoder.layers.{l}.self_attn.k_proj"},
                {WeightSlot::Qkv, "model.decoder.layers.{l}.self_attn.v_proj"},
                {WeightSlot::AttentionOut, "model.decoder.layers.{l}.self_attn.out_proj"},
                {WeightSlot::GateUp, "model.decoder.layers.{l}.fc1"},
                {WeightSlot::Down, "model.decoder.layers.{l}.fc2"}};
  return spec;
}

}  // namespace

extern const Architecture opt{kOptHuggingFace, {}, build_opt};

}  // namespace sluice::models::arch
