// Granite 3 and 4 and their mixtures: the Llama shape with factors on embeddings, scores, residuals and logits.
// The SWA models have windows, sinks and a theta per layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGraniteHuggingFace[] = {"GraniteForCausalLM", "GraniteMoeForCausalLM",
                                                    "GraniteMoeSharedForCausalLM", "GraniteSWAForCausalLM",
                                                    "GraniteMoeSWAForCausalLM"};
constexpr std::string_view kGraniteGguf[] = {"granite", "granitemoe", "granite_swa"};

void use_windows_and_sinks(Config& c, ModelSpec& spec) {
  use_windows(c, spec, 4);
  if (c.has("layer_rope_theta")) use_layer_thetas(c, spec, c.numbers("layer_rope_theta"));
  if (c.has("no_rope_layers")) drop_listed_ropes(c, spec);
  for (LayerSpec& layer : spec.layers) attention(layer).sinks = true;
}

ModelSpec build_granite(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  use_multipliers(c, spec);
  spec.logit_scale = 1.0f / c.number_or(c.is_gguf() ? "logit_scale" : "logits_scaling", 1.0f);
  const bool windows = c.architecture() == kGraniteHuggingFace[3] ||
                       c.architecture() == kGraniteHuggingFace[4] || c.architecture() == kGraniteGguf[2];
  if (windows) use_windows_and_sinks(c, spec);
  if (c.size_or("num_local_experts", 0) == 0) return spec;
  MoeFfn ffn = moe_ffn(c);
  ffn.shared_inner =
      c.size_or(c.is_gguf() ? "shared_expert_intermediate_size" : "shared_intermediate_size", 0);
  for (LayerSpec& layer : spec.layers) layer.ffn = ffn;
  if (!c.is_gguf())
    spec.names =
        spec.names.with({{WeightSlot::Router, "model.layers.{l}.block_sparse_moe.router.layer"},
                         {WeightSlot::Router, "model.layers.{l}.block_sparse_moe.router"},
                         {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.input_linear"},
                         {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.gate_up_proj"},
                         {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.output_linear"},
                         {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.down_proj"},
                         {WeightSlot::SharedGateUp, "model.layers.{l}.shared_mlp.input_linear"},
                         {WeightSlot::SharedDown, "model.layers.{l}.shared_mlp.output_linear"}});
  return spec;
}

}  // namespace

extern const Architecture granite{kGraniteHuggingFace, kGraniteGguf, build_granite};

}  // namespace sluice::models::arch
