// DeepSeek 1 (MoE 16B): the Llama shape with softmax-routed and shared experts after the first dense layers.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kDeepseekMoeHuggingFace[] = {"DeepseekForCausalLM"};
constexpr std::string_view kDeepseekMoeGguf[] = {"deepseek"};

ModelSpec build_deepseek_moe(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  if (c.size_or("num_local_experts", 0) == 0) return spec;
  c.assume("norm_topk_prob", false);
  MoeFfn ffn = grouped_moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Softmax;
  ffn.router_choice_bias = false;
  use_moe(c, spec, ffn);
  return spec;
}

}  // namespace

extern const Architecture deepseek_moe{kDeepseekMoeHuggingFace, kDeepseekMoeGguf, build_deepseek_moe};

}  // namespace sluice::models::arch
