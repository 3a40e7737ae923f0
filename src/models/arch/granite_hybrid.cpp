// Granite 4, hybrids of state spaces and attention: Granite's factors, and a feed-forward that lies where mixtures keep the
// expert that is always used; or such a mixture.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGraniteHybridHuggingFace[] = {"GraniteMoeHybridForCausalLM"};
constexpr std::string_view kGraniteHybridGguf[] = {"granitehybrid"};

ModelSpec build_granite_hybrid(Config& c) {
  const std::vector<std::string> kinds = layer_kinds(c, "mamba");
  const auto scans = [](const std::string& kind) { return kind == "mamba" || kind == "linear_attention"; };
  ModelSpec spec = decoder_spec(c);
  use_multipliers(c, spec);
  spec.logit_scale = 1.0f / c.number_or(c.is_gguf() ? "logit_scale" : "logits_scaling", 1.0f);
  const bool turns =
      c.is_gguf() ? c.flag_or("rope_finetuned", true) : c.text_or("position_embedding_type", "") == "rope";
  // Files of Bamba turn half of each head, whose rows are ordered as if all of it turned.
  if (c.is_gguf() && c.flag_or("rope_finetuned", false))
    c.fail("'granitehybrid.rope.scaling.finetuned' is true, as in files of Bamba; must be false");
  const int inner = c.is_gguf() ? c.size_or("shared_expert_intermediate_size", c.size("intermediate_size"))
                                : c.size("shared_intermediate_size");
  for (LayerSpec& layer : spec.layers) {
    if (!turns) attention(layer).rope = -1;
    std::get<DenseFfn>(layer.ffn).inner = inner;
    if (c.size_or("num_local_experts", 0) == 0) continue;
    MoeFfn ffn = moe_ffn(c);
    ffn.shared_inner = inner;
    layer.ffn = ffn;
  }
  if (std::any_of(kinds.begin(), kinds.end(), scans)) {
    const StateSpace space = state_space(c, spec.dim);
    for (size_t i = 0; i < spec.layers.size() && i < kinds.size(); ++i)
      if (scans(kinds[i])) spec.layers[i].mixer = space;
  }
  if (c.is_gguf()) return spec;
  spec.names =
      spec.names.with({{WeightSlot::GateUp, "model.layers.{l}.shared_mlp.input_linear"},
                       {WeightSlot::Down, "model.layers.{l}.shared_mlp.output_linear"},
                       {WeightSlot::SharedGateUp, "model.layers.{l}.shared_mlp.input_linear"},
                       {WeightSlot::SharedDown, "model.layers.{l}.shared_mlp.output_linear"},
                       {WeightSlot::Router, "model.layers.{l}.block_sparse_moe.router.layer"},
                       {WeightSlot::Router, "model.layers.{l}.block_sparse_moe.router"},
                       {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.input_linear"},
                       {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.gate_up_proj"},
                       {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.output_linear"},
                       {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.down_proj"}});
  return spec;
}

}  // namespace

extern const Architecture granite_hybrid{kGraniteHybridHuggingFace, kGraniteHybridGguf, build_granite_hybrid};

}  // namespace sluice::models::arch
