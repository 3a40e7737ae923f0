// GPT-J: mixer and feed-forward side by side after one layer norm, neighbouring pairs of part of each head
// rotated.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGptjHuggingFace[] = {"GPTJForCausalLM"};
constexpr std::string_view kGptjGguf[] = {"gptj"};

ModelSpec build_gptj(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  spec.ropes[0].style = RopeStyle::Interleaved;
  spec.norm = NormKind::Layer;
  use_kv_per_head(spec);
  use_wiring(spec, Wiring::Parallel);
  use_plain_ffn(c, spec, "gelu_new", "n_inner");
  if (!c.is_gguf())
    spec.names = {{Slot::TokenEmbedding, "transformer.wte"},
                  {Slot::OutputNorm, "transformer.ln_f"},
                  {Slot::Output, "lm_head"},
                  {Slot::MixerNorm, "transformer.h.{l}.ln_1"},
                  {Slot::Qkv, "transformer.h.{l}.attn.q_proj"},
                  {Slot::Qkv, "transformer.h.{l}.attn.k_proj"},
                  {Slot::Qkv, "transformer.h.{l}.attn.v_proj"},
                  {Slot::AttentionOut, "transformer.h.{l}.attn.out_proj"},
                  {Slot::GateUp, "transformer.h.{l}.mlp.fc_in"},
                  {Slot::Down, "transformer.h.{l}.mlp.fc_out"}};
  return spec;
}

}  // namespace

extern const Architecture gptj{kGptjHuggingFace, kGptjGguf, build_gptj};

}  // namespace sluice::models::arch
