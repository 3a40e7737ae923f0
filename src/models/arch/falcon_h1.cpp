// Falcon-H1: attention beside a state space in every layer, with factors on all their parts.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kFalconH1HuggingFace[] = {"FalconH1ForCausalLM"};
constexpr std::string_view kFalconH1Gguf[] = {"falcon-h1"};  // with the factors in its weights

StateSpace falcon_space(Config& c, int dim) {
  StateSpace space = state_space(c, dim);
  const bool before = c.flag_or("mamba_norm_before_gate", !c.is_gguf());
  space.norm = before ? StateSpace::Norm::BeforeGate : StateSpace::Norm::AfterGate;
  if (!c.flag_or("mamba_rms_norm", c.stores("blk.0.ssm_norm.weight"))) space.norm = StateSpace::Norm::None;
  space.norm_groups = space.groups;
  space.input_scale = c.number_or("ssm_in_multiplier", 1.0f);
  for (const double factor : c.numbers("ssm_multipliers"))
    space.part_scales.push_back(static_cast<float>(factor));
  if (!space.part_scales.empty() && space.part_scales.size() != 5)
    c.fail("'ssm_multipliers' must have 5 factors: of gate, x, b, c and steps");
  return space;
}

ModelSpec build_falcon_h1(Config& c) {
  refuse_flags(c, {"attention_bias", "mlp_bias", "mamba_proj_bias"});  // which the factors leave out
  ModelSpec spec = decoder_spec(c);
  spec.embedding_scale = c.number_or("embedding_multiplier", 1.0f);
  spec.logit_scale = c.number_or("lm_head_multiplier", 1.0f);
  const std::vector<double> factors = c.numbers("mlp_multipliers");
  const StateSpace space = falcon_space(c, spec.dim);
  for (LayerSpec& layer : spec.layers) {
    Attention mixer = attention(layer);
    mixer.input_scale = c.number_or("attention_in_multiplier", 1.0f);
    mixer.key_scale = c.number_or("key_multiplier", 1.0f);
    layer.mixer = AttentionBesideStateSpace{mixer, space, c.number_or("attention_out_multiplier", 1.0f),
                                            c.number_or("ssm_out_multiplier", 1.0f)};
    if (factors.size() != 2) continue;
    std::get<DenseFfn>(layer.ffn).gate_scale = static_cast<float>(factors[0]);
    std::get<DenseFfn>(layer.ffn).scale = static_cast<float>(factors[1]);
  }
  return spec;
}

}  // namespace

extern const Architecture falcon_h1{kFalconH1HuggingFace, kFalconH1Gguf, build_falcon_h1};

}  // namespace sluice::models::arch
