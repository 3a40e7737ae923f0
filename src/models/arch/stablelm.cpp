// StableLM: layer norms, partial rotation, in the 12B model one norm for mixer and feed-forward and a norm on
// each query and key head.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kStablelmHuggingFace[] = {"StableLmForCausalLM", "StableLMEpochForCausalLM"};
constexpr std::string_view kStablelmGguf[] = {"stablelm"};

ModelSpec build_stablelm(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  const bool parallel =
      c.is_gguf() ? !c.stores("blk.0.ffn_norm.weight") : c.flag_or("use_parallel_residual", false);
  if (parallel) use_wiring(spec, Wiring::Parallel);
  const bool norms = c.is_gguf() ? c.stores("blk.0.attn_q_norm.weight") : c.flag_or("qk_layernorm", false);
  for (LayerSpec& layer : spec.layers)
    if (norms) attention(layer).qk_norm = QkNorm::EachHead;
  if (!c.is_gguf())
    spec.names = spec.names.with({{WeightSlot::QNorm, "model.layers.{l}.self_attn.q_layernorm.norms.{e}"},
                                  {WeightSlot::KNorm, "model.layers.{l}.self_attn.k_layernorm.norms.{e}"}});
  return spec;
}

}  // namespace

extern const Architecture stablelm{kStablelmHuggingFace, kStablelmGguf, build_stablelm};

}  // namespace sluice::models::arch
