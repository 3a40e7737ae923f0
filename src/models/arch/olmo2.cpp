// OLMo 2 and 3: norms after the mixer and the feed-forward instead of before, and over the whole width of q
// and k; 3 has windows.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOlmo2HuggingFace[] = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"};
constexpr std::string_view kOlmo2Gguf[] = {"olmo2"};

ModelSpec build_olmo2(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 4);
  const float theta = c.sub("rope_parameters").number_or("rope_theta", c.number_or("rope_theta", 10000.0f));
  c.assume("rope_local_base_freq", theta);  // not stretched
  use_local_rope(c, spec);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::Whole;
    layer.wiring = Wiring::PostNorm;
  }
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_attention_layernorm"},
                                  {WeightSlot::FfnPostNorm, "model.layers.{l}.post_feedforward_layernorm"}});
  return spec;
}

}  // namespace

extern const Architecture olmo2{kOlmo2HuggingFace, kOlmo2Gguf, build_olmo2};

}  // namespace sluice::models::arch
