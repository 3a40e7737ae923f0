// CodeGen: GPT-J with rows of q, v and k in four quarters.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kCodegenHuggingFace[] = {"CodeGenForCausalLM"};

ModelSpec build_codegen(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.ropes[0].style = RopeStyle::Interleaved;
  spec.norm = NormKind::Layer;
  use_kv_per_head(spec);
  use_wiring(spec, Wiring::Parallel);
  use_plain_ffn(c, spec, "gelu_new", "n_inner");
  if (attention(spec.layers[0]).heads % 4 != 0) c.fail("the heads do not make four quarters");
  spec.names = {{Slot::TokenEmbedding, "transformer.wte"},
                {Slot::OutputNorm, "transformer.ln_f"},
                {Slot::Output, "lm_head"},
                {Slot::MixerNorm, "transformer.h.{l}.ln_1"},
                {Slot::Qkv, "transformer.h.{l}.attn.qkv_proj", Fold::QuarteredQvk},
                {Slot::AttentionOut, "transformer.h.{l}.attn.out_proj"},
                {Slot::GateUp, "transformer.h.{l}.mlp.fc_in"},
                {Slot::Down, "transformer.h.{l}.mlp.fc_out"}};
  return spec;
}

}  // namespace

extern const Architecture codegen{kCodegenHuggingFace, {}, build_codegen};

}  // namespace sluice::models::arch
