// Qwen 3 and Mellum 2: a norm on each head's query and key, and, in the mixture models, normalised softmax
// routing; Mellum has windows with a rope of their own.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kQwen3HuggingFace[] = {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
                                                  "MellumForCausalLM", "Qwen3VLForConditionalGeneration",
                                                  "Qwen3VLMoeForConditionalGeneration"};
constexpr std::string_view kQwen3Gguf[] = {"qwen3", "qwen3moe", "mellum", "qwen3vl", "qwen3vlmoe"};

ModelSpec build_qwen3(Config& c) {
  ModelSpec spec = decoder_spec(c);
  const bool mellum = c.architecture() == kQwen3HuggingFace[2] || c.architecture() == kQwen3Gguf[2];
  if (c.architecture() == kQwen3HuggingFace[1])
    c.drop("max_window_layers");  // windows in all layers or in none
  if (mellum || c.flag_or("use_sliding_window", c.has("layer_types"))) use_windows(c, spec, mellum ? 1 : 0);
  for (Rope& rope : spec.ropes) rope.sections.interleaved = true;
  if (mellum) use_local_rope(c, spec);
  for (LayerSpec& layer : spec.layers) attention(layer).qk_norm = QkNorm::PerHead;
  if (c.size_or("num_local_experts", 0) == 0) return spec;
  MoeFfn ffn = moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Softmax;
  const bool is_vl_moe = c.architecture() == kQwen3HuggingFace[4];
  ffn.routing.normalize = c.flag_or("norm_topk_prob", c.is_gguf() || is_vl_moe);
  use_sparse_moe(c, spec, ffn);
  if (is_vl_moe)
    spec.names = spec.names.with(
        {{WeightSlot::ExpertGateUp, "model.layers.{l}.mlp.experts.gate_up_proj", Fold::Transpose},
         {WeightSlot::ExpertDown, "model.layers.{l}.mlp.experts.down_proj", Fold::Transpose}});
  return spec;
}

}  // namespace

extern const Architecture qwen3{kQwen3HuggingFace, kQwen3Gguf, build_qwen3};

}  // namespace sluice::models::arch
