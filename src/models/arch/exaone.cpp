// EXAONE 3: the Llama shape under other names.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kExaoneHuggingFace[] = {"ExaoneForCausalLM"};
constexpr std::string_view kExaoneGguf[] = {"exaone"};

ModelSpec build_exaone(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (!c.is_gguf())
    spec.names = {{Slot::TokenEmbedding, "transformer.wte"},
                  {Slot::OutputNorm, "transformer.ln_f"},
                  {Slot::Output, "lm_head"},
                  {Slot::MixerNorm, "transformer.h.{l}.ln_1"},
                  {Slot::FfnNorm, "transformer.h.{l}.ln_2"},
                  {Slot::Qkv, "transformer.h.{l}.attn.attention.q_proj"},
                  {Slot::Qkv, "transformer.h.{l}.attn.attention.k_proj"},
                  {Slot::Qkv, "transformer.h.{l}.attn.attention.v_proj"},
                  {Slot::AttentionOut, "transformer.h.{l}.attn.attention.out_proj"},
                  {Slot::GateUp, "transformer.h.{l}.mlp.c_fc_0"},
                  {Slot::GateUp, "transformer.h.{l}.mlp.c_fc_1"},
                  {Slot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture exaone{kExaoneHuggingFace, kExaoneGguf, build_exaone};

}  // namespace sluice::models::arch
