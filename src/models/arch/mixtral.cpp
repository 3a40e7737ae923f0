// Mixtral: Mistral with a mixture of experts in every layer.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMixtralHuggingFace[] = {"MixtralForCausalLM"};

ModelSpec build_mixtral(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 0);
  for (LayerSpec& layer : spec.layers) layer.ffn = moe_ffn(c);
  spec.names =
      spec.names.with({{WeightSlot::Router, "model.layers.{l}.block_sparse_moe.gate"},
                       {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w1"},
                       {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3"},
                       {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2"}});
  return spec;
}

}  // namespace

extern const Architecture mixtral{kMixtralHuggingFace, {}, build_mixtral};

}  // namespace sluice::models::arch
