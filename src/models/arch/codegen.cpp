// CodeGen: GPT-J with rows of q, v and k in four quarters.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kCodegenHuggingFace[] = {"CodeGenForCausalLM"};

ModelSpec build_codegen(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.ropes[0].style = RopeStyle::GptJ;
  spec.norm = NormKind::Layer;
  use_kv_per_head(spec);
  use_wiring(spec, Wiring::Parallel);
  use_plain_ffn(c, spec, "gelu_new", "n_inner");
  if (attention(spec.layers[0]).heads % 4 != 0) c.fail("the heads do not make four quarters");
  spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                {WeightSlot::OutputNorm, "transformer.ln_f"},
                {WeightSlot::Output, "lm_head"},
                {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
                {WeightSlot::Qkv, "transformer.h.{l}.attn.qkv_proj", Fold::QuarteredQvk},
                {WeightSlot::AttentionOut, "transformer.h.{l}.attn.out_proj"},
                {WeightSlot::GateUp, "transformer.h.{l}.mlp.fc_in"},
                {WeightSlot::Down, "transformer.h.{l}.mlp.fc_out"}};
  return spec;
}

}  // namespace

extern const Architecture codegen{kCodegenHuggingFace, {}, build_codegen};

}  // namespace sluice::models::arch
