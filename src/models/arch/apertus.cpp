// Apertus: a plain feed-forward of xIELU and a norm on each head's query and key.
#include <fmt/format.h>

#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kApertusHuggingFace[] = {"ApertusForCausalLM"};
constexpr std::string_view kApertusGguf[] = {"apertus"};

// GGUF keeps a number per layer, or one for all.
float of_layer(Config& c, std::string_view key, size_t layer) {
  const std::vector<double> values = c.numbers(key);
  if (values.empty()) return c.number(key);
  return static_cast<float>(values[std::min(layer, values.size() - 1)]);
}

ModelSpec build_apertus(Config& c) {
  const std::string activation = c.text_or("hidden_act", "xielu");
  if (activation != "xielu") c.fail(fmt::format("'hidden_act' is '{}', must be 'xielu'", activation));
  c.drop("hidden_act");
  ModelSpec spec = decoder_spec(c);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention(spec.layers[i]).qk_norm = QkNorm::PerHead;
    XieluFfn ffn{.inner = std::get<DenseFfn>(spec.layers[i].ffn).inner, .parameters = {}};
    if (c.is_gguf())
      ffn.parameters = {of_layer(c, "xielu_alpha_p", i), of_layer(c, "xielu_alpha_n", i),
                        of_layer(c, "xielu_beta", i)};
    spec.layers[i].ffn = ffn;
  }
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::MixerNorm, "model.layers.{l}.attention_layernorm"},
                                  {WeightSlot::FfnNorm, "model.layers.{l}.feedforward_layernorm"},
                                  {WeightSlot::GateUp, "model.layers.{l}.mlp.up_proj"}});
  return spec;
}

}  // namespace

extern const Architecture apertus{kApertusHuggingFace, kApertusGguf, build_apertus};

}  // namespace sluice::models::arch
