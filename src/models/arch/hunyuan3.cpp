// Hunyuan 3: a norm on each head's query and key, then DeepSeek 3's experts after the first layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHunyuan3HuggingFace[] = {"HYV3ForCausalLM"};
constexpr std::string_view kHunyuan3Gguf[] = {"hy_v3"};

ModelSpec build_hunyuan3(Config& c) {
  c.assume("first_k_dense_replace", 1);
  ModelSpec spec = decoder_spec(c);
  use_moe(c, spec, grouped_moe_ffn(c));
  for (LayerSpec& layer : spec.layers) attention(layer).qk_norm = QkNorm::PerHead;
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::Router, "model.layers.{l}.mlp.router.gate"},
                                  {WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.expert_bias"},
                                  {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_mlp.gate_proj"},
                                  {WeightSlot::SharedGateUp, "model.layers.{l}.mlp.shared_mlp.up_proj"},
                                  {WeightSlot::SharedDown, "model.layers.{l}.mlp.shared_mlp.down_proj"}});
  return spec;
}

}  // namespace

extern const Architecture hunyuan3{kHunyuan3HuggingFace, kHunyuan3Gguf, build_hunyuan3};

}  // namespace sluice::models::arch
