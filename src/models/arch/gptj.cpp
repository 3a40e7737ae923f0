// GPT-J: mixer and feed-forward side by side after one layer norm, neighbouring pairs of part of each head
// rotated.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGptjHuggingFace[] = {"GPTJForCausalLM"};
constexpr std::string_view kGptjGguf[] = {"gptj"};

ModelSpec build_gptj(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  spec.ropes[0].style = RopeStyle::GptJ;
  spec.norm = NormKind::Layer;
  use_kv_per_head(spec);
  use_wiring(spec, Wiring::Parallel);
  use_plain_ffn(c, spec, "gelu_new", "n_inner");
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                  {WeightSlot::OutputNorm, "transformer.ln_f"},
                  {WeightSlot::Output, "lm_head"},
                  {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.q_proj"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.k_proj"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.v_proj"},
                  {WeightSlot::AttentionOut, "transformer.h.{l}.attn.out_proj"},
                  {WeightSlot::GateUp, "transformer.h.{l}.mlp.fc_in"},
                  {WeightSlot::Down, "transformer.h.{l}.mlp.fc_out"}};
  return spec;
}

}  // namespace

extern const Architecture gptj{kGptjHuggingFace, kGptjGguf, build_gptj};

}  // namespace sluice::models::arch
