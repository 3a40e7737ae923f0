// GLM 4: the Llama shape with half of each head rotated in neighbouring pairs and biases on q, k and v; the
// 0414 models norm what mixer and feed-forward add.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGlmHuggingFace[] = {"GlmForCausalLM", "Glm4ForCausalLM",
                                                "Glm4vForConditionalGeneration"};
constexpr std::string_view kGlmGguf[] = {"chatglm", "glm4"};

ModelSpec build_glm(Config& c) {
  c.assume("partial_rotary_factor", 0.5);
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  const bool seeing_gguf = c.is_gguf() && c.has("mrope_section");
  spec.ropes[0].style = seeing_gguf ? RopeStyle::NeoX : RopeStyle::GptJ;
  if (c.architecture() == kGlmHuggingFace[0] || c.architecture() == kGlmGguf[0]) return spec;
  use_wiring(spec, Wiring::Sandwich);
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_self_attn_layernorm"},
                                  {WeightSlot::FfnPostNorm, "model.layers.{l}.post_mlp_layernorm"}});
  return spec;
}

}  // namespace

extern const Architecture glm{kGlmHuggingFace, kGlmGguf, build_glm};

}  // namespace sluice::models::arch
