// MiniMax M2: norms over the whole width of q and k, partial rotation, sigmoid routing with a bias on the
// choice.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMinimaxM2HuggingFace[] = {"MiniMaxM2ForCausalLM"};
constexpr std::string_view kMinimaxM2Gguf[] = {"minimax-m2"};

ModelSpec build_minimax_m2(Config& c) {
  ModelSpec spec = decoder_spec(c);
  MoeFfn ffn = grouped_moe_ffn(c);
  ffn.routing.normalize = true;
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::Whole;
    layer.ffn = ffn;
  }
  if (!c.is_gguf())
    spec.names = spec.names.with(
        {{WeightSlot::Router, "model.layers.{l}.block_sparse_moe.gate"},
         {WeightSlot::RouterChoiceBias, "model.layers.{l}.block_sparse_moe.e_score_correction_bias"},
         {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w1"},
         {WeightSlot::ExpertGateUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3"},
         {WeightSlot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2"}});
  return spec;
}

}  // namespace

extern const Architecture minimax_m2{kMinimaxM2HuggingFace, kMinimaxM2Gguf, build_minimax_m2};

}  // namespace sluice::models::arch
