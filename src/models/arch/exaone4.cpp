// EXAONE 4: norms after mixer and feed-forward, and on each head; the hybrid models have no positions in
// their full layers. The mixtures are pre-norm, with DeepSeek 3's experts.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kExaone4HuggingFace[] = {"Exaone4ForCausalLM", "ExaoneMoeForCausalLM",
                                                    "ExaoneMoEForCausalLM"};
constexpr std::string_view kExaone4Gguf[] = {"exaone4", "exaone-moe"};

ModelSpec build_exaone4(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 4);
  if (c.size_or("sliding_window", 0) > 0) drop_rope_of_full_layers(spec);
  for (LayerSpec& layer : spec.layers) attention(layer).qk_norm = QkNorm::PerHead;
  if (c.size_or("num_local_experts", 0) > 0) {
    use_moe(c, spec, grouped_moe_ffn(c));
    if (!c.is_gguf())
      spec.names =
          spec.names.with({{WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.e_score_correction_bias"}});
    return spec;
  }
  use_wiring(spec, Wiring::PostNorm);
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_attention_layernorm"},
                                  {WeightSlot::FfnPostNorm, "model.layers.{l}.post_feedforward_layernorm"}});
  return spec;
}

}  // namespace

extern const Architecture exaone4{kExaone4HuggingFace, kExaone4Gguf, build_exaone4};

}  // namespace sluice::models::arch
