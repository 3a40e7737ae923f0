// Flint: windows with rope, full layers without positions, sinks, sigmoid-routed experts beside one that is
// always used.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kFlintHuggingFace[] = {"FlintForCausalLM"};

ModelSpec build_flint(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 4);
  drop_rope_of_full_layers(spec);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::PerHead;
    attention(layer).sinks = true;
  }
  MoeFfn ffn = moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Sigmoid;
  ffn.routing.normalize = c.flag_or("norm_topk_prob", true);
  ffn.shared_inner = c.size("shared_expert_intermediate_size");
  use_sparse_moe(c, spec, ffn);
  spec.names = spec.names.with({{WeightSlot::Sinks, "model.layers.{l}.self_attn.softmax_offset"}});
  return spec;
}

}  // namespace

extern const Architecture flint{kFlintHuggingFace, {}, build_flint};

}  // namespace sluice::models::arch
