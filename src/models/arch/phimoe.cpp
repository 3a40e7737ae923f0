// Phi 3.5 MoE: layer norms with biases, experts chosen one after another by the sparse mixer.
#include <fmt/format.h>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kPhimoeHuggingFace[] = {"PhimoeForCausalLM", "PhiMoEForCausalLM"};
constexpr std::string_view kPhimoeGguf[] = {"phimoe"};

ModelSpec build_phimoe(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  spec.outgrown = Outgrown::Recomputed;
  use_windows(c, spec, 0);
  MoeFfn ffn = moe_ffn(c);
  if (ffn.routing.used != 2) c.fail(fmt::format("'num_experts_per_tok' is {}, must be 2", ffn.routing.used));
  ffn.routing.score = kernels::Routing::Score::SparseMixer;
  ffn.routing.margin = 2.0f * c.number_or("router_jitter_noise", 0.01f);
  for (LayerSpec& layer : spec.layers) layer.ffn = ffn;
  if (!c.is_gguf())
    spec.names =
        spec.names.with({{WeightSlot::Router, "model.layers.{l}.block_sparse_moe.gate"},
                         {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w1"},
                         {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3"},
                         {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2"}});
  return spec;
}

}  // namespace

extern const Architecture phimoe{kPhimoeHuggingFace, kPhimoeGguf, build_phimoe};

}  // namespace sluice::models::arch
