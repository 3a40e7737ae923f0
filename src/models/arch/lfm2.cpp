// LFM2, dense and mixture: short convolutions, with grouped-query attention in some layers.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kLfm2HuggingFace[] = {"Lfm2ForCausalLM", "Lfm2MoeForCausalLM"};
constexpr std::string_view kLfm2Gguf[] = {"lfm2", "lfm2moe"};

// Configs may give the width before it is brought to two thirds and to a multiple.
int inner_width(Config& c) {
  int inner = c.size_or("block_ff_dim", c.size("intermediate_size"));
  if (c.is_gguf() || c.has("moe_intermediate_size") || !c.flag_or("block_auto_adjust_ff_dim", true))
    return inner;
  inner = static_cast<int>(2 * int64_t{inner} / 3);
  if (c.is_null("block_ffn_dim_multiplier")) return inner;
  const int multiple = std::max(1, c.size_or("block_multiple_of", 256));
  inner = static_cast<int>(c.number_or("block_ffn_dim_multiplier", 1.0f) * static_cast<float>(inner));
  return (inner + multiple - 1) / multiple * multiple;
}

ModelSpec build_lfm2(Config& c) {
  c.assume("tie_word_embeddings", c.flag_or("tie_embedding", true));
  c.assume("rope_theta", 1000000.0);
  const std::vector<std::string> kinds = layer_kinds(c, "conv");
  const std::vector<double> full = c.numbers("full_attn_idxs");
  ModelSpec spec = decoder_spec(c);
  const int inner = inner_width(c), taps = c.size_or("conv_L_cache", 3);
  check_taps(c, taps);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    std::get<DenseFfn>(spec.layers[i].ffn).inner = inner;
    attention(spec.layers[i]).qk_norm = QkNorm::PerHead;
    const bool listed = std::find(full.begin(), full.end(), static_cast<double>(i)) != full.end();
    if (i < kinds.size() ? kinds[i] == "conv" : !full.empty() && !listed)
      spec.layers[i].mixer = ShortConv{taps};
  }
  if (c.size_or("num_local_experts", 0) > 0) {
    c.assume("first_k_dense_replace", 2);
    MoeFfn ffn = grouped_moe_ffn(c);
    const std::string bias =
        "blk." + std::to_string(c.size_or("first_k_dense_replace", 0)) + ".exp_probs_b.bias";
    ffn.router_choice_bias = c.is_gguf() ? c.stores(bias) : c.flag_or("use_expert_bias", true);
    use_moe(c, spec, ffn);
  }
  if (c.is_gguf()) spec.names = spec.names.with({{WeightSlot::OutputNorm, "token_embd_norm"}});
  return spec;
}

}  // namespace

extern const Architecture lfm2{kLfm2HuggingFace, kLfm2Gguf, build_lfm2};

}  // namespace sluice::models::arch
