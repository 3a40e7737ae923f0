// MiniCPM 1 to 3: the Llama shape with multipliers on embeddings, residuals and logits; 3 has latent
// attention.
#include <cmath>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMinicpmHuggingFace[] = {"MiniCPMForCausalLM", "MiniCPM3ForCausalLM"};
constexpr std::string_view kMinicpmGguf[] = {"minicpm", "minicpm3"};

ModelSpec build_minicpm(Config& c) {
  const bool third = c.architecture() == kMinicpmHuggingFace[1] || c.architecture() == kMinicpmGguf[1];
  ModelSpec spec = decoder_spec(c, third ? RopeStyle::NeoX : RopeStyle::GptJ);
  const auto layers = static_cast<float>(spec.layers.size());
  const auto dim = static_cast<float>(spec.dim);
  spec.embedding_scale = c.number_or("scale_emb", 12.0f);
  spec.residual_scale = c.number_or("scale_depth", 1.4f) / std::sqrt(layers);
  spec.logit_scale = c.number_or("dim_model_base", 256.0f) / dim;
  if (c.is_gguf()) {
    spec.embedding_scale = c.number_or("embedding_multiplier", spec.embedding_scale);
    spec.residual_scale = c.number_or("residual_multiplier", spec.residual_scale);
    if (c.has("logit_scale")) spec.logit_scale = 1.0f / c.number("logit_scale");
  }
  if (!third) return spec;
  const LatentAttention mixer = latent_attention(c, attention(spec.layers[0]).heads);
  spec.ropes = {make_rope(c, {.dims = mixer.rope_dim})};
  for (LayerSpec& layer : spec.layers) layer.mixer = mixer;
  return spec;
}

}  // namespace

extern const Architecture minicpm{kMinicpmHuggingFace, kMinicpmGguf, build_minicpm};

}  // namespace sluice::models::arch
