// BLOOM: layer norms (one on the embeddings too), linear position biases, rows of q, k and v grouped by head.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kBloomHuggingFace[] = {"BloomForCausalLM"};
constexpr std::string_view kBloomGguf[] = {"bloom"};

ModelSpec build_bloom(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.embedding_norm = true;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  if (c.flag_or("apply_residual_connection_post_layernorm", false)) use_wiring(spec, Wiring::NormedStream);
  drop_all_ropes(spec);
  for (LayerSpec& layer : spec.layers) {
    Attention& mixer = attention(layer);
    mixer.alibi = 8.0f;
    layer.ffn = DenseFfn{.inner = 4 * spec.dim, .activation = Activation::GeluTanh, .gated = false};
  }
  use_kv_per_head(spec);
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "transformer.word_embeddings"},
                  {WeightSlot::EmbeddingNorm, "transformer.word_embeddings_layernorm"},
                  {WeightSlot::OutputNorm, "transformer.ln_f"},
                  {WeightSlot::Output, "lm_head"},
                  {WeightSlot::MixerNorm, "transformer.h.{l}.input_layernorm"},
                  {WeightSlot::FfnNorm, "transformer.h.{l}.post_attention_layernorm"},
                  {WeightSlot::Qkv, "transformer.h.{l}.self_attention.query_key_value", Fold::GroupedQkv},
                  {WeightSlot::AttentionOut, "transformer.h.{l}.self_attention.dense"},
                  {WeightSlot::GateUp, "transformer.h.{l}.mlp.dense_h_to_4h"},
                  {WeightSlot::Down, "transformer.h.{l}.mlp.dense_4h_to_h"}};
  return spec;
}

}  // namespace

extern const Architecture bloom{kBloomHuggingFace, kBloomGguf, build_bloom};

}  // namespace sluice::models::arch
