// MiniMax M3 (text): norms on each head, layers that choose blocks of positions, clamped SwiGLU, experts by sigmoid beside a
// shared one.
#include <fmt/format.h>

#include "models/family.h"
#include "models/loading/config/published.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMinimaxM3HuggingFace[] = {"MiniMaxM3VLForCausalLM",
                                                      "MiniMaxM3SparseForConditionalGeneration"};
constexpr std::string_view kMinimaxM3Gguf[] = {"minimax-m3"};

// GGUF files count shared experts of an expert's width; the matrix says how wide they are.
int shared_inner(Config& c, int counted) {
  if (!c.is_gguf()) return c.size_or("shared_intermediate_size", 3072);
  const int64_t rows =
      c.stored_rows(fmt::format("blk.{}.ffn_up_shexp.weight", c.size_or("first_k_dense_replace", 0)));
  return rows > 0 && rows < 1 << 24 ? static_cast<int>(rows) : counted;
}

MoeFfn minimax_m3_experts(Config& c) {
  MoeFfn ffn = grouped_moe_ffn(c);
  if (!c.is_gguf()) ffn.inner = c.size("intermediate_size");
  ffn.activation = Activation::SwigluOai;
  ffn.routing.normalize = true;
  ffn.routing.scale = c.number_or("routed_scaling_factor", 2.0f);
  ffn.shared_inner = shared_inner(c, ffn.shared_inner);
  return ffn;
}

ModelSpec build_minimax_m3(Config& c) {
  if (!c.is_gguf()) read_published_minimax_m3(c);
  check_swiglu(c);
  if (!c.is_gguf()) c.drop("rotary_dim");  // partial_rotary_factor counts
  c.drop("hidden_act");
  ModelSpec spec = decoder_spec(c);
  use_block_indexers(c, spec);
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::PerHead;
    const char* inner = c.is_gguf() ? "intermediate_size" : "dense_intermediate_size";
    layer.ffn = DenseFfn{.inner = c.size_or(inner, 12288), .activation = Activation::SwigluOai};
  }
  use_moe(c, spec, minimax_m3_experts(c));
  if (c.is_gguf()) return spec;  // whose gains have their 1
  spec.names = spec.names.folded(
      {WeightSlot::MixerNorm, WeightSlot::FfnNorm, WeightSlot::OutputNorm, WeightSlot::QNorm,
       WeightSlot::KNorm, WeightSlot::IndexQueryNorm, WeightSlot::IndexKeyNorm},
      Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture minimax_m3{kMinimaxM3HuggingFace, kMinimaxM3Gguf, build_minimax_m3};

}  // namespace sluice::models::arch
