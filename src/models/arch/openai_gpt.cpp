// GPT: GPT-2 with the norms after the sums, and none before the logits.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOpenaiGptHuggingFace[] = {"OpenAIGPTLMHeadModel"};

ModelSpec build_openai_gpt(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.output_norm = false;
  spec.positions = Positions::Learned;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  drop_all_ropes(spec);
  use_kv_per_head(spec);
  use_wiring(spec, Wiring::SumNorm);
  const std::string activation = c.text_or("afn", "gelu");
  c.assume("hidden_act", json::string(activation == "gelu" ? "gelu_new" : activation));
  use_plain_ffn(c, spec, "gelu_new", "n_inner");
  spec.names = {{WeightSlot::TokenEmbedding, "transformer.tokens_embed"},
                {WeightSlot::PositionEmbedding, "transformer.positions_embed"},
                {WeightSlot::Output, "lm_head"},
                {WeightSlot::MixerPostNorm, "transformer.h.{l}.ln_1"},
                {WeightSlot::FfnPostNorm, "transformer.h.{l}.ln_2"},
                {WeightSlot::Qkv, "transformer.h.{l}.attn.c_attn", Fold::Transpose},
                {WeightSlot::AttentionOut, "transformer.h.{l}.attn.c_proj", Fold::Transpose},
                {WeightSlot::GateUp, "transformer.h.{l}.mlp.c_fc", Fold::Transpose},
                {WeightSlot::Down, "transformer.h.{l}.mlp.c_proj", Fold::Transpose}};
  return spec;
}

}  // namespace

extern const Architecture openai_gpt{kOpenaiGptHuggingFace, {}, build_openai_gpt};

}  // namespace sluice::models::arch
