// HyperCLOVA X: Granite's factors (the logits are multiplied) with norms before and after mixer and
// feed-forward.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHyperclovaxHuggingFace[] = {"HyperCLOVAXForCausalLM"};

ModelSpec build_hyperclovax(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_multipliers(c, spec);
  spec.logit_scale = c.number_or("logits_scaling", 1.0f);
  if (!c.flag_or("use_post_norm", true)) return spec;
  use_wiring(spec, Wiring::Sandwich);
  spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_norm1"},
                                {WeightSlot::FfnPostNorm, "model.layers.{l}.post_norm2"}});
  return spec;
}

}  // namespace

extern const Architecture hyperclovax{kHyperclovaxHuggingFace, {}, build_hyperclovax};

}  // namespace sluice::models::arch
