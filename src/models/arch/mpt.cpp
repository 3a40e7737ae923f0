// MPT: layer norms, usually without biases, linear position biases, clipped q, k and v.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMptHuggingFace[] = {"MptForCausalLM", "MPTForCausalLM"};
constexpr std::string_view kMptGguf[] = {"mpt"};

ModelSpec build_mpt(Config& c) {
  ModelSpec spec = decoder_spec(c);
  Config shape = c.is_gguf() ? c : c.sub("attn_config");
  spec.norm = NormKind::Layer;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  drop_all_ropes(spec);
  const int inner = c.is_gguf() ? c.size("intermediate_size") : spec.dim * c.size_or("expansion_ratio", 4);
  for (LayerSpec& layer : spec.layers) {
    Attention& mixer = attention(layer);
    mixer.kv_heads = shape.size_or(c.is_gguf() ? "num_key_value_heads" : "kv_n_heads", mixer.heads);
    if (mixer.kv_heads < 1 || mixer.heads % mixer.kv_heads != 0)
      c.fail("the key-value heads do not divide the heads");
    mixer.scale = shape.number_or("softmax_scale", mixer.scale);
    mixer.clip = shape.number_or("clip_qkv", 0.0f);
    if (shape.flag_or("alibi", true)) mixer.alibi = shape.number_or("alibi_bias_max", 8.0f);
    if (shape.flag_or("qk_ln", false)) mixer.qk_norm = QkNorm::Whole;
    layer.ffn = DenseFfn{.inner = inner, .activation = Activation::Gelu, .gated = false};
  }
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                  {WeightSlot::PositionEmbedding, "transformer.wpe"},
                  {WeightSlot::OutputNorm, "transformer.norm_f"},
                  {WeightSlot::Output, "lm_head"},
                  {WeightSlot::MixerNorm, "transformer.blocks.{l}.norm_1"},
                  {WeightSlot::FfnNorm, "transformer.blocks.{l}.norm_2"},
                  {WeightSlot::Qkv, "transformer.blocks.{l}.attn.Wqkv"},
                  {WeightSlot::QNorm, "transformer.blocks.{l}.attn.q_ln"},
                  {WeightSlot::KNorm, "transformer.blocks.{l}.attn.k_ln"},
                  {WeightSlot::AttentionOut, "transformer.blocks.{l}.attn.out_proj"},
                  {WeightSlot::GateUp, "transformer.blocks.{l}.ffn.up_proj"},
                  {WeightSlot::Down, "transformer.blocks.{l}.ffn.down_proj"}};
  return spec;
}

}  // namespace

extern const Architecture mpt{kMptHuggingFace, kMptGguf, build_mpt};

}  // namespace sluice::models::arch
