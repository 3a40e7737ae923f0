// Aria (text): the Llama shape with routed experts stored [in, out] beside one that is always used.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kAriaHuggingFace[] = {"AriaTextForCausalLM", "AriaForConditionalGeneration"};

ModelSpec build_aria(Config& c) {
  expect_text(c, "hidden_act", "silu");
  ModelSpec spec = decoder_spec(c);
  MoeFfn ffn = moe_ffn(c);
  ffn.shared_inner = ffn.inner * std::clamp(c.size_or("n_shared_experts", 2), 0, 64);
  for (LayerSpec& layer : spec.layers) layer.ffn = ffn;
  spec.names =
      spec.names.with({{WeightSlot::Router, "model.layers.{l}.mlp.router"},
                       {WeightSlot::ExpertGateUp, "model.layers.{l}.mlp.experts.fc1", Fold::Transpose},
                       {WeightSlot::ExpertDown, "model.layers.{l}.mlp.experts.fc2", Fold::Transpose}});
  return spec;
}

}  // namespace

extern const Architecture aria{kAriaHuggingFace, {}, build_aria};

}  // namespace sluice::models::arch
