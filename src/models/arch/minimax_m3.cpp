// MiniMax M3 (text): norms on each head, layers that choose blocks of positions, clamped SwiGLU, experts by sigmoid beside a
// shared one.
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
  use_block_indexers(c, spec);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::PerHead;
    layer.ffn =
        DenseFfn{.inner = c.size_or("dense_intermediate_size", 12288), .activation = Activation::SwigluOai};
  }
  use_moe(c, spec, minimax_m3_experts(c));
  spec.names = spec.names.folded(
      {WeightSlot::MixerNorm, WeightSlot::FfnNorm, WeightSlot::OutputNorm, WeightSlot::QNorm,
       WeightSlot::KNorm, WeightSlot::IndexQueryNorm, WeightSlot::IndexKeyNorm},
      Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture minimax_m3{kMinimaxM3HuggingFace, {}, build_minimax_m3};

}  // namespace sluice::models::arch
