// Arcee Trinity: gated attention with a norm on each head, windows with rope and full layers without
// positions, norms before and after, DeepSeek 3's experts after the first dense layers.
#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kAfmoeHuggingFace[] = {"AfmoeForCausalLM"};
constexpr std::string_view kAfmoeGguf[] = {"afmoe"};

ModelSpec build_afmoe(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (c.flag_or("mup_enabled", c.is_gguf())) spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  use_windows(c, spec, 4);
  drop_rope_of_full_layers(spec);
  use_wiring(spec, Wiring::Sandwich);
  use_moe(c, spec, grouped_moe_ffn(c));
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::PerHead;
    attention(layer).gated = true;
  }
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_attention_layernorm"},
                                  {WeightSlot::FfnNorm, "model.layers.{l}.pre_mlp_layernorm"},
                                  {WeightSlot::FfnPostNorm, "model.layers.{l}.post_mlp_layernorm"},
                                  {WeightSlot::Router, "model.layers.{l}.mlp.router.gate"},
                                  {WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.expert_bias"}});
  return spec;
}

}  // namespace

extern const Architecture afmoe{kAfmoeHuggingFace, kAfmoeGguf, build_afmoe};

}  // namespace sluice::models::arch
