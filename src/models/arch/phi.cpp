// Phi 1 to 2: mixer and feed-forward side by side after one layer norm, partial rotation, biases everywhere.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kPhiHuggingFace[] = {"PhiForCausalLM"};
constexpr std::string_view kPhiGguf[] = {"phi2"};

ModelSpec build_phi(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  use_wiring(spec, Wiring::Parallel);
  use_plain_ffn(c, spec, "gelu_new");
  for (LayerSpec& layer : spec.layers)
    if (c.flag_or("qk_layernorm", false)) attention(layer).qk_norm = QkNorm::PerHead;
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::OutputNorm, "model.final_layernorm"},
                                  {WeightSlot::AttentionOut, "model.layers.{l}.self_attn.dense"},
                                  {WeightSlot::QNorm, "model.layers.{l}.self_attn.q_layernorm"},
                                  {WeightSlot::KNorm, "model.layers.{l}.self_attn.k_layernorm"},
                                  {WeightSlot::GateUp, "model.layers.{l}.mlp.fc1"},
                                  {WeightSlot::Down, "model.layers.{l}.mlp.fc2"}});
  return spec;
}

}  // namespace

extern const Architecture phi{kPhiHuggingFace, kPhiGguf, build_phi};

}  // namespace sluice::models::arch
