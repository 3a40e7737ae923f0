// EXAONE 3: the Llama shape under other names.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kExaoneHuggingFace[] = {"ExaoneForCausalLM"};
constexpr std::string_view kExaoneGguf[] = {"exaone"};

ModelSpec build_exaone(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                  {WeightSlot::OutputNorm, "transformer.ln_f"},
                  {WeightSlot::Output, "lm_head"},
                  {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
                  {WeightSlot::FfnNorm, "transformer.h.{l}.ln_2"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.attention.q_proj"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.attention.k_proj"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.attention.v_proj"},
                  {WeightSlot::AttentionOut, "transformer.h.{l}.attn.attention.out_proj"},
                  {WeightSlot::GateUp, "transformer.h.{l}.mlp.c_fc_0"},
                  {WeightSlot::GateUp, "transformer.h.{l}.mlp.c_fc_1"},
                  {WeightSlot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture exaone{kExaoneHuggingFace, kExaoneGguf, build_exaone};

}  // namespace sluice::models::arch
