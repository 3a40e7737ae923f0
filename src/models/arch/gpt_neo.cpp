// GPT-Neo: GPT-2 with every other layer's view local, and scores that are not scaled.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGptNeoHuggingFace[] = {"GPTNeoForCausalLM"};

ModelSpec build_gpt_neo(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.positions = Positions::Learned;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  drop_all_ropes(spec);
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "gelu_new");
  const std::vector<std::string> types = c.texts("attention_layers");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    mixer.scale = 1.0f;
    if (i < types.size() ? types[i] == "local" : i % 2 == 1) mixer.window = c.size_or("window_size", 256);
  }
  spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                {WeightSlot::PositionEmbedding, "transformer.wpe"},
                {WeightSlot::OutputNorm, "transformer.ln_f"},
                {WeightSlot::Output, "lm_head"},
                {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
                {WeightSlot::FfnNorm, "transformer.h.{l}.ln_2"},
                {WeightSlot::Qkv, "transformer.h.{l}.attn.attention.q_proj"},
                {WeightSlot::Qkv, "transformer.h.{l}.attn.attention.k_proj"},
                {WeightSlot::Qkv, "transformer.h.{l}.attn.attention.v_proj"},
                {WeightSlot::AttentionOut, "transformer.h.{l}.attn.attention.out_proj"},
                {WeightSlot::GateUp, "transformer.h.{l}.mlp.c_fc"},
                {WeightSlot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture gpt_neo{kGptNeoHuggingFace, {}, build_gpt_neo};

}  // namespace sluice::models::arch
