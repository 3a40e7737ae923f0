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
  spec.names = {{Slot::TokenEmbedding, "model.decoder.embed_tokens"},
                {Slot::EmbeddingIn, "model.decoder.project_in"},
                {Slot::EmbeddingOut, "model.decoder.project_out"},
                {Slot::PositionEmbedding, "model.decoder.embed_positions"},
                {Slot::OutputNorm, "model.decoder.final_layer_norm"},
                {Slot::Output, "lm_head"},
                {Slot::MixerNorm, "model.decoder.layers.{l}.self_attn_layer_norm"},
                {Slot::MixerPostNorm, "model.decoder.layers.{l}.self_attn_layer_norm"},
                {Slot::FfnNorm, "model.decoder.layers.{l}.final_layer_norm"},
                {Slot::FfnPostNorm, "model.decoder.layers.{l}.final_layer_norm"},
                {Slot::Qkv, "model.decoder.layers.{l}.self_attn.q_proj"},
                {Slot::Qkv, "model.decoder.layers.{l}.self_attn.k_proj"},
                {Slot::Qkv, "model.decoder.layers.{l}.self_attn.v_proj"},
                {Slot::AttentionOut, "model.decoder.layers.{l}.self_attn.out_proj"},
                {Slot::GateUp, "model.decoder.layers.{l}.fc1"},
                {Slot::Down, "model.decoder.layers.{l}.fc2"}};
  return spec;
}

}  // namespace

extern const Architecture opt{kOptHuggingFace, {}, build_opt};

}  // namespace sluice::models::arch
