// ERNIE 4.5: the Llama shape rotating neighbouring pairs; the mixtures choose by softmax with a bias on the
// choice.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kErnie45HuggingFace[] = {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM",
                                                    "Ernie4_5_MoeForCausalLM"};
constexpr std::string_view kErnie45Gguf[] = {"ernie4_5", "ernie4_5-moe"};

bool is_mixture_layer(Config& c, int layer, int layers) {
  const int interval = c.size_or("moe_layer_interval", c.size_or("interleave_moe_layer_step", 1));
  const int first = c.size_or("moe_layer_start_index", c.size_or("first_k_dense_replace", 1));
  const int last = c.has("moe_layer_end_index") ? static_cast<int>(c.number("moe_layer_end_index")) : -1;
  return interval > 0 && (layer + 1) % interval == 0 && layer >= first &&
         layer <= (last < 0 ? layers - 1 : last);
}

ModelSpec build_ernie4_5(Config& c) {
  c.assume("rope_theta", 500000.0);
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  spec.ropes[0].style = RopeStyle::GptJ;
  if (c.size_or("num_local_experts", 0) == 0) return spec;
  MoeFfn ffn = grouped_moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Softmax;
  ffn.routing.normalize = true;
  const int layers = static_cast<int>(spec.layers.size());
  for (int i = 0; i < layers; ++i)
    if (is_mixture_layer(c, i, layers)) spec.layers[static_cast<size_t>(i)].ffn = ffn;
  if (!c.is_gguf())
    spec.names = spec.names.with(
        {{WeightSlot::RouterChoiceBias, "model.layers.{l}.mlp.moe_statics.e_score_correction_bias"}});
  return spec;
}

}  // namespace

extern const Architecture ernie4_5{kErnie45HuggingFace, kErnie45Gguf, build_ernie4_5};

}  // namespace sluice::models::arch
