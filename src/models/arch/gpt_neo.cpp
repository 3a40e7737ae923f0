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
  spec.names = {{Slot::TokenEmbedding, "transformer.wte"},
                {Slot::PositionEmbedding, "transformer.wpe"},
                {Slot::OutputNorm, "transformer.ln_f"},
                {Slot::Output, "lm_head"},
                {Slot::MixerNorm, "transformer.h.{l}.ln_1"},
                {Slot::FfnNorm, "transformer.h.{l}.ln_2"},
                {Slot::Qkv, "transformer.h.{l}.attn.attention.q_proj"},
                {Slot::Qkv, "transformer.h.{l}.attn.attention.k_proj"},
                {Slot::Qkv, "transformer.h.{l}.attn.attention.v_proj"},
                {Slot::AttentionOut, "transformer.h.{l}.attn.attention.out_proj"},
                {Slot::GateUp, "transformer.h.{l}.mlp.c_fc"},
                {Slot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture gpt_neo{kGptNeoHuggingFace, {}, build_gpt_neo};

}  // namespace sluice::models::arch
