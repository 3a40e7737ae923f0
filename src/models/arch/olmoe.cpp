// OLMoE and FlexOLMo: softmax-routed experts and norms over the whole width of q and k; FlexOLMo norms after
// the mixer and the feed-forward as OLMo 2 does.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kOlmoeHuggingFace[] = {"OlmoeForCausalLM", "FlexOlmoForCausalLM"};
constexpr std::string_view kOlmoeGguf[] = {"olmoe"};

ModelSpec build_olmoe(Config& c) {
  ModelSpec spec = decoder_spec(c);
  MoeFfn ffn = moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Softmax;
  ffn.routing.normalize = c.flag_or("norm_topk_prob", false);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::Whole;
    attention(layer).clip = c.number_or("clip_qkv", 0.0f);
    attention(layer).clip_after_norm = true;
    layer.ffn = ffn;
  }
  if (c.architecture() != kOlmoeHuggingFace[1]) return spec;
  use_wiring(spec, Wiring::PostNorm);
  spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_attention_layernorm"},
                                {WeightSlot::FfnPostNorm, "model.layers.{l}.post_feedforward_layernorm"}});
  return spec;
}

}  // namespace

extern const Architecture olmoe{kOlmoeHuggingFace, kOlmoeGguf, build_olmoe};

}  // namespace sluice::models::arch
