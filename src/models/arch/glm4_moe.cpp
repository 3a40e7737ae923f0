// GLM 4.5, dots.llm1 and Solar Open: grouped-query attention with DeepSeek 3's experts after the first dense
// layers.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGlm4MoeHuggingFace[] = {
    "Glm4MoeForCausalLM", "Dots1ForCausalLM", "SolarOpenForCausalLM", "Glm4vMoeForConditionalGeneration"};
constexpr std::string_view kGlm4MoeGguf[] = {"glm4moe", "dots1"};

ModelSpec build_glm4_moe(Config& c) {
  const bool glm = c.architecture() == kGlm4MoeHuggingFace[0] || c.architecture() == kGlm4MoeHuggingFace[3];
  const bool dots = c.architecture() == kGlm4MoeHuggingFace[1] || c.architecture() == kGlm4MoeGguf[1];
  if (glm) c.assume("partial_rotary_factor", 0.5);
  ModelSpec spec = decoder_spec(c);
  if (c.has("layer_types")) use_windows(c, spec, 0);
  use_moe(c, spec, grouped_moe_ffn(c));
  const bool norms = c.is_gguf() ? c.stores("blk.0.attn_q_norm.weight") : c.flag_or("use_qk_norm", dots);
  for (LayerSpec& layer : spec.layers)
    if (norms) attention(layer).qk_norm = QkNorm::PerHead;
  return spec;
}

}  // namespace

extern const Architecture glm4_moe{kGlm4MoeHuggingFace, kGlm4MoeGguf, build_glm4_moe};

}  // namespace sluice::models::arch
