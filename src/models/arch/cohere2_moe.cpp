// Command with experts: mixer and feed-forward side by side after one norm, windows with rope and full layers
// without positions, routed and shared experts averaged, dense layers first.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kCohere2MoeHuggingFace[] = {"Cohere2MoeForCausalLM"};
constexpr std::string_view kCohere2MoeGguf[] = {"cohere2moe"};

MoeFfn experts(Config& c) {
  MoeFfn ffn = moe_ffn(c);
  if (!c.is_gguf()) ffn.inner = c.size("intermediate_size");
  if (c.text_or("expert_selection_fn", c.is_gguf() ? "sigmoid" : "softmax") == "sigmoid") {
    ffn.routing.score = kernels::Routing::Score::Sigmoid;
    ffn.routing.normalize = c.flag_or("norm_topk_prob", true);
  }
  ffn.shared_inner = ffn.inner * std::min(c.size_or("n_shared_experts", 0), 64);
  const bool average = c.text_or("shared_expert_combination_strategy", "average") == "average";
  if (ffn.shared_inner > 0 && average) ffn.routing.scale = ffn.shared_scale = 0.5f;
  return ffn;
}

ModelSpec build_cohere2_moe(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  spec.ropes[0].style = RopeStyle::GptJ;
  spec.norm = c.has("rms_norm_eps") ? NormKind::Rms : NormKind::Layer;
  spec.tied_output = c.flag_or("tie_word_embeddings", true);
  spec.logit_scale = c.number_or("logit_scale", 0.0625f);
  use_wiring(spec, Wiring::Parallel);
  use_windows(c, spec, c.is_gguf() ? 4 : c.size_or("sliding_window_pattern", 4));
  drop_rope_of_full_layers(spec);
  use_moe(c, spec, experts(c));
  for (LayerSpec& layer : spec.layers) {
    auto* dense = std::get_if<DenseFfn>(&layer.ffn);
    if (dense == nullptr) continue;
    if (!c.is_gguf()) dense->inner = c.size_or("prefix_dense_intermediate_size", dense->inner);
    if (c.size_or("prefix_dense_sliding_window_pattern", 1) == 1) attention(layer).rope = 0;
  }
  return spec;
}

}  // namespace

extern const Architecture cohere2_moe{kCohere2MoeHuggingFace, kCohere2MoeGguf, build_cohere2_moe};

}  // namespace sluice::models::arch
