// OLMo Hybrid: gated delta-rule attention with norms before its parts, and OLMo 3's attention with norms behind them.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOlmoHybridHuggingFace[] = {"OlmoHybridForCausalLM"};

ModelSpec build_olmo_hybrid(Config& c) {
  c.assume("rms_norm_eps", 1e-6);
  const int heads = c.size("num_attention_heads"), dim = c.size("hidden_size");
  c.assume("linear_num_key_heads", heads);
  c.assume("linear_num_value_heads", heads);
  c.assume("linear_key_head_dim", 3 * dim / (4 * c.size("linear_num_key_heads")));
  c.assume("linear_value_head_dim", 2 * c.size("linear_key_head_dim"));
  const std::vector<std::string> kinds = layer_kinds(c, "linear_attention");
  const Config rope = c.sub("rope_parameters");  // a theta of null takes the positions away
  const bool turns = rope.has("rope_theta") || (!rope.is_null("rope_theta") && !c.is_null("rope_theta"));
  ModelSpec spec = decoder_spec(c);
  if (!turns) drop_all_ropes(spec);
  GatedDelta delta = gated_delta(c);
  delta.norm_eps = 1e-5f;  // whatever the model's own is
  delta.beta_scale = c.flag_or("linear_allow_neg_eigval", true) ? 2.0f : 1.0f;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention(spec.layers[i]).qk_norm = QkNorm::Whole;
    const bool linear = i < kinds.size() ? kinds[i] == "linear_attention" : i % 4 != 3;
    if (linear) spec.layers[i].mixer = delta;
    if (!linear) spec.layers[i].wiring = Wiring::PostNorm;
  }
  spec.names = spec.names.with({{WeightSlot::MixerNorm, "model.layers.{l}.attention_layer_norm"},
                                {WeightSlot::MixerNorm, "model.layers.{l}.input_layernorm"},
                                {WeightSlot::FfnNorm, "model.layers.{l}.feedforward_layer_norm"},
                                {WeightSlot::FfnNorm, "model.layers.{l}.post_attention_layernorm"},
                                {WeightSlot::MixerPostNorm, "model.layers.{l}.post_attention_layernorm"},
                                {WeightSlot::MixerPostNorm, "model.layers.{l}.feedforward_layer_norm"},
                                {WeightSlot::FfnPostNorm, "model.layers.{l}.post_feedforward_layernorm"}});
  return spec;
}

}  // namespace

extern const Architecture olmo_hybrid{kOlmoHybridHuggingFace, {}, build_olmo_hybrid};

}  // namespace sluice::models::arch
