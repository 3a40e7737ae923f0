// GPT-2: layer norms with biases, learned positions, a plain GELU feed-forward, matrices stored [in, out].
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGpt2HuggingFace[] = {"GPT2LMHeadModel"};
constexpr std::string_view kGpt2Gguf[] = {"gpt2"};

ModelSpec build_gpt2(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.positions = Positions::Learned;
  spec.tied_output = c.flag_or("tie_word_embeddings", !c.is_gguf());
  drop_all_ropes(spec);
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "gelu_new", "n_inner");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    if (!c.flag_or("scale_attn_weights", true)) mixer.scale = 1.0f;
    if (c.flag_or("scale_attn_by_inverse_layer_idx", false)) mixer.scale /= static_cast<float>(i + 1);
  }
  if (c.is_gguf()) return spec;
  spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                {WeightSlot::PositionEmbedding, "transformer.wpe"},
                {WeightSlot::OutputNorm, "transformer.ln_f"},
                {WeightSlot::Output, "lm_head"},
                {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
                {WeightSlot::FfnNorm, "transformer.h.{l}.ln_2"},
                {WeightSlot::Qkv, "transformer.h.{l}.attn.c_attn", Fold::Transpose},
                {WeightSlot::AttentionOut, "transformer.h.{l}.attn.c_proj", Fold::Transpose},
                {WeightSlot::GateUp, "transformer.h.{l}.mlp.c_fc", Fold::Transpose},
                {WeightSlot::Down, "transformer.h.{l}.mlp.c_proj", Fold::Transpose}};
  return spec;
}

}  // namespace

extern const Architecture gpt2{kGpt2HuggingFace, kGpt2Gguf, build_gpt2};

}  // namespace sluice::models::arch
