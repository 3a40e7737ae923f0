// SantaCoder and StarCoder: GPT-2 with one key-value head for all queries and matrices stored [out, in].
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGptBigcodeHuggingFace[] = {"GPTBigCodeForCausalLM"};
constexpr std::string_view kGptBigcodeGguf[] = {"starcoder"};

ModelSpec build_gpt_bigcode(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.positions = Positions::Learned;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  drop_all_ropes(spec);
  use_plain_ffn(c, spec, "gelu_pytorch_tanh", "n_inner");
  const bool multi_query =
      c.is_gguf() ? attention(spec.layers[0]).kv_heads == 1 : c.flag_or("multi_query", true);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).kv_heads = multi_query ? 1 : attention(layer).heads;
    if (!c.flag_or("scale_attn_weights", true)) attention(layer).scale = 1.0f;
  }
  if (!c.is_gguf())
    spec.names = {
        {WeightSlot::TokenEmbedding, "transformer.wte"},
        {WeightSlot::PositionEmbedding, "transformer.wpe"},
        {WeightSlot::OutputNorm, "transformer.ln_f"},
        {WeightSlot::Output, "lm_head"},
        {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
        {WeightSlot::FfnNorm, "transformer.h.{l}.ln_2"},
        {WeightSlot::Qkv, "transformer.h.{l}.attn.c_attn", multi_query ? Fold::None : Fold::GroupedQkv},
        {WeightSlot::AttentionOut, "transformer.h.{l}.attn.c_proj"},
        {WeightSlot::GateUp, "transformer.h.{l}.mlp.c_fc"},
        {WeightSlot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture gpt_bigcode{kGptBigcodeHuggingFace, kGptBigcodeGguf, build_gpt_bigcode};

}  // namespace sluice::models::arch
