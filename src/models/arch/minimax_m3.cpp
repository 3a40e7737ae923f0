// MiniMax M3 (text), as far as its sparse layers see everything: norms on each head, clamped SwiGLU, experts by sigmoid
// beside a shared one.
#include <algorithm>

#include "models/family.h"
#include "models/loading/published.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMinimaxM3HuggingFace[] = {"MiniMaxM3VLForCausalLM",
                                                      "MiniMaxM3SparseForConditionalGeneration"};

MoeFfn minimax_m3_experts(Config& c) {
  MoeFfn ffn = grouped_moe_ffn(c);
  ffn.inner = c.size("intermediate_size");
  ffn.activation = Activation::SwigluOai;
  ffn.routing.normalize = true;
  ffn.routing.scale = c.number_or("routed_scaling_factor", 2.0f);
  ffn.shared_inner = c.size_or("shared_intermediate_size", 3072);
  return ffn;
}

ModelSpec build_minimax_m3(Config& c) {
  read_published_minimax_m3(c);
  check_swiglu(c);
  c.drop("rotary_dim");  // partial_rotary_factor counts
  c.drop("hidden_act");
  ModelSpec spec = decoder_spec(c);
  const std::vector<std::string> kinds = c.texts("layer_types");
  if (std::find(kinds.begin(), kinds.end(), "minimax_m3_sparse") != kinds.end()) {
    const int64_t seen = int64_t{c.size_or("index_topk_blocks", 16)} * c.size_or("index_block_size", 128);
    spec.context_limit = static_cast<int>(std::min<int64_t>(seen, 1 << 30));
    spec.context = std::min(spec.context, spec.context_limit);
  }
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::PerHead;
    layer.ffn =
        DenseFfn{.inner = c.size_or("dense_intermediate_size", 12288), .activation = Activation::SwigluOai};
  }
  use_moe(c, spec, minimax_m3_experts(c));
  spec.names = spec.names.folded({WeightSlot::MixerNorm, WeightSlot::FfnNorm, WeightSlot::OutputNorm,
                                  WeightSlot::QNorm, WeightSlot::KNorm},
                                 Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture minimax_m3{kMinimaxM3HuggingFace, {}, build_minimax_m3};

}  // namespace sluice::models::arch
