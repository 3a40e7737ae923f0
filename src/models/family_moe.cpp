// What families with experts are written with.
#include <fmt/format.h>

#include <algorithm>

#include "models/family.h"

namespace sluice::models {

MoeFfn moe_ffn(Config& c) {
  MoeFfn ffn;
  ffn.routing.score = kernels::Routing::Score::SoftmaxOfTop;
  ffn.routing.experts = c.size("num_local_experts");
  ffn.routing.used = c.size("num_experts_per_tok");
  if (ffn.routing.used > ffn.routing.experts || ffn.routing.experts > 4096) {
    c.fail(fmt::format("{} experts per token of {} experts (limit 4096)", ffn.routing.used,
                       ffn.routing.experts));
    ffn.routing.used = 1;
  }
  ffn.inner = c.size_or("moe_intermediate_size", c.size_or("intermediate_size", 0));
  if (ffn.inner < 1) c.fail("'moe_intermediate_size' is missing");
  ffn.activation = activation(c);
  return ffn;
}

MoeFfn grouped_moe_ffn(Config& c) {
  MoeFfn ffn = moe_ffn(c);
  kernels::Routing& routing = ffn.routing;
  routing.score = kernels::Routing::Score::Sigmoid;
  routing.normalize = c.flag_or("norm_topk_prob", true);
  routing.scale = c.number_or("routed_scaling_factor", 1.0f);
  routing.groups = std::max(1, c.size_or("n_group", 1));
  routing.groups_used = std::max(1, c.size_or("topk_group", 1));
  ffn.router_choice_bias = true;
  const int size = routing.experts / routing.groups;
  if (size * routing.groups != routing.experts || routing.groups_used > routing.groups ||
      routing.used > int64_t{size} * routing.groups_used) {
    c.fail(fmt::format("{} experts of {} cannot be chosen from {} of {} equal groups", routing.used,
                       routing.experts, routing.groups_used, routing.groups));
    routing.groups = routing.groups_used = 1;
  }
  routing.group_best = std::min(2, std::max(1, size));
  int64_t shared = int64_t{ffn.inner} * c.size_or("n_shared_experts", 0);
  if (c.is_gguf() && shared == 0) shared = c.size_or("shared_expert_intermediate_size", 0);
  if (shared > (1 << 24)) c.fail(fmt::format("shared experts of {} in all, limit {}", shared, 1 << 24));
  ffn.shared_inner = static_cast<int>(std::min<int64_t>(shared, 1 << 24));
  return ffn;
}

void use_moe(Config& c, ModelSpec& spec, const MoeFfn& ffn) {
  const auto dense = static_cast<size_t>(c.size_or("first_k_dense_replace", 0));
  const std::vector<std::string> types = c.texts("mlp_layer_types");
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (i < types.size() ? types[i] == "sparse" : i >= dense) spec.layers[i].ffn = ffn;
}

void use_sparse_moe(Config& c, ModelSpec& spec, const MoeFfn& ffn) {
  if (c.has("mlp_layer_types")) return use_moe(c, spec, ffn);
  const auto step = static_cast<size_t>(c.size_or("decoder_sparse_step", 1));
  const std::vector<double> dense = c.numbers("mlp_only_layers");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool stays_dense = std::find(dense.begin(), dense.end(), static_cast<double>(i)) != dense.end();
    if (!stays_dense && step > 0 && (i + 1) % step == 0) spec.layers[i].ffn = ffn;
  }
}

void use_experts_beside(Config& c, ModelSpec& spec) {
  MoeFfn experts = moe_ffn(c);
  experts.routing.score = kernels::Routing::Score::Softmax;
  experts.routing.normalize = true;
  experts.router_weight_scale = true;
  for (LayerSpec& layer : spec.layers) layer.ffn = DenseBesideExperts{std::get<DenseFfn>(layer.ffn), experts};
}

void check_swiglu(Config& c) {
  const float alpha = c.number_or("swiglu_alpha", 1.702f), limit = c.number_or("swiglu_limit", 7.0f);
  if (alpha != 1.702f || limit != 7.0f)
    c.fail(fmt::format("'swiglu_alpha' is {} and 'swiglu_limit' {}, must be 1.702 and 7", alpha, limit));
}

}  // namespace sluice::models
