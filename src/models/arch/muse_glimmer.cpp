// Muse Glimmer (text): normed embeddings, gated attention with normed queries and keys, windows with rope and full layers
// without positions, norms before and after.
#include <fmt/format.h>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMuseGlimmerHuggingFace[] = {"MuseGlimmerForConditionalGeneration"};
constexpr std::string_view kMuseGlimmerGguf[] = {
    "muse-glimmer"};  // with the queries' factor in the gains of their norm

// Thetas of the layers, of which 0 takes the positions from its layer.
void drop_ropes_without_theta(Config& c, ModelSpec& spec) {
  const std::vector<double> thetas = c.numbers("layer_rope_theta");
  const size_t layers = spec.layers.size();
  const float theta = c.sub("rope_parameters").number_or("rope_theta", 10000.0f);
  if (!thetas.empty() && thetas.size() != layers)
    c.fail(fmt::format("'layer_rope_theta' has {} entries for {} layers", thetas.size(), layers));
  for (size_t i = 0; i < layers; ++i) {
    const bool turns = i < thetas.size() ? thetas[i] != 0 : (layers - 1 - i) % 4 != 0;
    if (!turns) attention(spec.layers[i]).rope = -1;
    if (turns && i < thetas.size() && static_cast<float>(thetas[i]) != theta)
      c.fail(fmt::format("'layer_rope_theta' has {}, must be 0 or the model's {}", thetas[i], theta));
  }
}

ModelSpec build_muse_glimmer(Config& c) {
  c.assume("hidden_act", json::string(c.text_or("hidden_activation", "silu")));
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  if (!c.is_gguf() && c.texts("layer_types").empty()) c.fail("'layer_types' is missing");
  spec.embedding_norm = true;
  spec.embedding_norm_gain = false;
  spec.post_norm_eps = c.number_or("post_norm_eps", 1e-8f);
  spec.logit_scale = c.number_or(c.is_gguf() ? "logit_scale" : "output_multiplier", 1.0f);
  spec.logit_softcap = c.number_or("final_logit_softcapping", 0.0f);
  use_windows(c, spec, 4);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).gated = true;
    attention(layer).qk_norm = c.is_gguf() ? QkNorm::PerHead : QkNorm::Scaleless;
    if (!c.is_gguf()) attention(layer).scale *= c.number_or("qk_scale_factor", 3.87f);
  }
  use_sandwich(spec);
  if (c.is_gguf()) return drop_rope_of_full_layers(spec), spec;
  drop_ropes_without_theta(c, spec);
  spec.names = spec.names.with({{WeightSlot::AttentionGate, "model.layers.{l}.self_attn.gate_proj"}})
                   .folded({WeightSlot::MixerNorm, WeightSlot::MixerPostNorm, WeightSlot::FfnNorm,
                            WeightSlot::FfnPostNorm},
                           Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture muse_glimmer{kMuseGlimmerHuggingFace, kMuseGlimmerGguf, build_muse_glimmer};

}  // namespace sluice::models::arch
