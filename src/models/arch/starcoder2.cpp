// StarCoder 2: layer norms and biases everywhere, a plain GELU feed-forward, a sliding window.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kStarcoder2HuggingFace[] = {"Starcoder2ForCausalLM"};
constexpr std::string_view kStarcoder2Gguf[] = {"starcoder2"};

ModelSpec build_starcoder2(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  use_windows(c, spec, 0);
  use_plain_ffn(c, spec, "gelu_pytorch_tanh");
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::GateUp, "model.layers.{l}.mlp.c_fc"},
                                  {WeightSlot::Down, "model.layers.{l}.mlp.c_proj"}});
  return spec;
}

}  // namespace

extern const Architecture starcoder2{kStarcoder2HuggingFace, kStarcoder2Gguf, build_starcoder2};

}  // namespace sluice::models::arch
