// Granite 3 and its mixtures: the Llama shape with multipliers on embeddings, scores, residuals and logits.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"GraniteForCausalLM", "GraniteMoeForCausalLM",
                                             "GraniteMoeSharedForCausalLM"};
constexpr std::string_view kGguf[] = {"granite", "granitemoe"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  spec.embedding_scale = c.number_or("embedding_multiplier", 1.0f);
  spec.residual_scale = c.number_or("residual_multiplier", 1.0f);
  spec.logit_scale = 1.0f / c.number_or(c.is_gguf() ? "logit_scale" : "logits_scaling", 1.0f);
  const bool mixture = c.size_or("num_local_experts", 0) > 0;
  for (LayerSpec& layer : spec.layers) {
    Attention& mixer = attention(layer);
    mixer.scale = c.number_or("attention_multiplier", mixer.scale);
    if (!mixture) continue;
    MoeFfn ffn = moe_ffn(c);
    ffn.shared_inner =
        c.size_or(c.is_gguf() ? "shared_expert_intermediate_size" : "shared_intermediate_size", 0);
    layer.ffn = ffn;
  }
  if (mixture && !c.is_gguf())
    spec.names = spec.names.with({{Slot::Router, "model.layers.{l}.block_sparse_moe.router.layer"},
                                  {Slot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.input_linear"},
                                  {Slot::ExpertDown, "model.layers.{l}.block_sparse_moe.output_linear"},
                                  {Slot::SharedGateUp, "model.layers.{l}.shared_mlp.input_linear"},
                                  {Slot::SharedDown, "model.layers.{l}.shared_mlp.output_linear"}});
  return spec;
}

}  // namespace

extern const Architecture granite{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
