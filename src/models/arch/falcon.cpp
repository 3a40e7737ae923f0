// Falcon: layer norms, rows of q, k and v grouped by key head; mixer and feed-forward side by side, after one
// norm (7B) or one each (40B and later); the RW models in sequence with linear position biases.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kFalconHuggingFace[] = {"FalconForCausalLM", "RWForCausalLM"};
constexpr std::string_view kFalconGguf[] = {"falcon"};

// How the layers are wired, where a config says it with three flags and a file with the norms it holds.
Wiring wiring(Config& c, bool new_layout) {
  if (c.is_gguf()) return c.stores("blk.0.attn_norm_2.weight") ? Wiring::ParallelTwoNorms : Wiring::Parallel;
  const bool two_norms = new_layout && c.size_or("num_ln_in_parallel_attn", 2) == 2;
  if (two_norms) return Wiring::ParallelTwoNorms;
  return new_layout || c.flag_or("parallel_attn", true) ? Wiring::Parallel : Wiring::PreNorm;
}

ModelSpec build_falcon(Config& c) {
  const bool new_layout = c.flag_or("new_decoder_architecture", false);
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  use_plain_ffn(c, spec, "gelu", "ffn_hidden_size");
  use_wiring(spec, wiring(c, new_layout));
  for (LayerSpec& layer : spec.layers) {
    Attention& mixer = attention(layer);
    if (!c.is_gguf() && !new_layout) mixer.kv_heads = c.flag_or("multi_query", true) ? 1 : mixer.heads;
    if (!c.flag_or("alibi", false)) continue;
    mixer.rope = -1;
    mixer.alibi = 8.0f;
    mixer.alibi_scale = mixer.scale;
  }
  const bool two = spec.layers[0].wiring == Wiring::ParallelTwoNorms;
  if (c.is_gguf() && two)
    spec.names = spec.names.with(
        {{WeightSlot::MixerNorm, "blk.{l}.attn_norm_2"}, {WeightSlot::FfnNorm, "blk.{l}.attn_norm"}});
  if (!c.is_gguf())
    spec.names = {
        {WeightSlot::TokenEmbedding, "transformer.word_embeddings"},
        {WeightSlot::OutputNorm, "transformer.ln_f"},
        {WeightSlot::Output, "lm_head"},
        {WeightSlot::MixerNorm, two ? "transformer.h.{l}.ln_attn" : "transformer.h.{l}.input_layernorm"},
        {WeightSlot::FfnNorm,
         two ? "transformer.h.{l}.ln_mlp" : "transformer.h.{l}.post_attention_layernorm"},
        {WeightSlot::Qkv, "transformer.h.{l}.self_attention.query_key_value", Fold::GroupedQkv},
        {WeightSlot::AttentionOut, "transformer.h.{l}.self_attention.dense"},
        {WeightSlot::GateUp, "transformer.h.{l}.mlp.dense_h_to_4h"},
        {WeightSlot::Down, "transformer.h.{l}.mlp.dense_4h_to_h"}};
  return spec;
}

}  // namespace

extern const Architecture falcon{kFalconHuggingFace, kFalconGguf, build_falcon};

}  // namespace sluice::models::arch
