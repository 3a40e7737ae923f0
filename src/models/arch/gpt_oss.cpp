// gpt-oss: alternating windows with attention sinks, biases everywhere, and experts of clamped, shifted
// SwiGLU.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGptOssHuggingFace[] = {"GptOssForCausalLM"};
constexpr std::string_view kGptOssGguf[] = {"gpt-oss"};

ModelSpec build_gpt_oss(Config& c) {
  c.assume("rope_scaling_truncate", false);
  check_swiglu(c);
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 2);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).sinks = true;
    MoeFfn ffn = moe_ffn(c);
    ffn.activation = Activation::SwigluOai;
    layer.ffn = ffn;
  }
  if (!c.is_gguf())
    spec.names = spec.names.with(
        {{WeightSlot::Router, "model.layers.{l}.mlp.router"},
         {WeightSlot::ExpertGateUp, "model.layers.{l}.mlp.experts.gate_up_proj", Fold::SplitPairs},
         {WeightSlot::ExpertDown, "model.layers.{l}.mlp.experts.down_proj", Fold::Transpose}});
  return spec;
}

}  // namespace

extern const Architecture gpt_oss{kGptOssHuggingFace, kGptOssGguf, build_gpt_oss};

}  // namespace sluice::models::arch
