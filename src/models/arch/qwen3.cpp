// Qwen 3: a norm on each head's query and key, and, in the mixture models, normalised softmax routing.
#include <algorithm>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kHuggingFace[] = {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"};
constexpr std::string_view kGguf[] = {"qwen3", "qwen3moe"};

ModelSpec build(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (c.has("layer_types")) use_windows(c, spec, 0);
  const int step = c.size_or("decoder_sparse_step", 1);
  const std::vector<double> dense = c.numbers("mlp_only_layers");
  const bool mixture = c.size_or("num_local_experts", 0) > 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention(spec.layers[i]).qk_norm = QkNorm::PerHead;
    const bool stays_dense = std::find(dense.begin(), dense.end(), static_cast<double>(i)) != dense.end();
    if (!mixture || stays_dense || step < 1 || (i + 1) % static_cast<size_t>(step) != 0) continue;
    MoeFfn ffn = moe_ffn(c);
    ffn.routing.score = kernels::Routing::Score::Softmax;
    ffn.routing.normalize = c.flag_or("norm_topk_prob", c.is_gguf());
    spec.layers[i].ffn = ffn;
  }
  return spec;
}

}  // namespace

extern const Architecture qwen3{kHuggingFace, kGguf, build};

}  // namespace sluice::models::arch
