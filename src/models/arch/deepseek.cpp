// DeepSeek 2 and 3, GLM 5 and Mistral 4: latent attention, dense layers first, then grouped sigmoid (3) or softmax
// routing with shared experts; 3.2 and GLM 5 choose what they attend to, Mistral raises the temperature of long contexts.
#include <fmt/format.h>

#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kDeepseekHuggingFace[] = {
    "DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM",  "Glm4MoeLiteForCausalLM", "YoutuForCausalLM",
    "Mistral4ForCausalLM",   "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"};
constexpr std::string_view kDeepseekGguf[] = {"deepseek2", "mistral4", "deepseek32", "glm-dsa"};

ModelSpec build_deepseek(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  const bool mistral = c.architecture() == kDeepseekHuggingFace[4] || c.architecture() == kDeepseekGguf[1];
  LatentAttention mixer = latent_attention(c, attention(spec.layers[0]).heads);
  const bool pairs = c.is_gguf() || c.flag_or("rope_interleave", true);
  spec.ropes = {make_rope(c, {.dims = mixer.rope_dim, .style = pairs ? RopeStyle::GptJ : RopeStyle::NeoX})};
  const int dense = c.size_or("first_k_dense_replace", 0);
  const int guess = c.stores(fmt::format("blk.{}.exp_probs_b.bias", dense)) ? 2 : 1;
  const bool sigmoid = c.is_gguf() ? c.size_or("expert_gating_func", guess) == 2
                                   : !mistral && c.architecture() != kDeepseekHuggingFace[1];
  if (mistral) mixer.temperature = query_temperature(c);
  for (LayerSpec& layer : spec.layers) layer.mixer = mixer;
  const bool glm = c.architecture() == kDeepseekHuggingFace[6] || c.architecture() == kDeepseekGguf[3];
  use_indexers(c, spec, glm ? RopeStyle::GptJ : RopeStyle::NeoX);
  if (c.size_or("num_local_experts", 0) == 0) return spec;
  // llama.cpp writes it where it is true.
  c.assume("norm_topk_prob", c.is_gguf() ? sigmoid && !c.has("expert_gating_func") : sigmoid || mistral);
  const bool second = c.architecture() == kDeepseekHuggingFace[1];
  if (second && c.text_or("topk_method", "greedy") == "greedy") {
    c.drop("n_group");
    c.drop("topk_group");
  }
  MoeFfn ffn = grouped_moe_ffn(c);
  if (second) ffn.routing.normalize = false;  // whatever norm_topk_prob says
  if (!sigmoid) {
    ffn.routing.score = kernels::Routing::Score::Softmax;
    if (!mistral) ffn.routing.group_best = 1;
    ffn.router_choice_bias = false;
  }
  use_moe(c, spec, ffn);
  return spec;
}

}  // namespace

extern const Architecture deepseek{kDeepseekHuggingFace, kDeepseekGguf, build_deepseek};

}  // namespace sluice::models::arch
