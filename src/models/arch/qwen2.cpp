// Qwen 2 and 2.5 and Seed-OSS: the Llama shape with biases on q, k and v (bound wherever a file has them); the
// mixtures have a gated shared expert.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kQwen2HuggingFace[] = {"Qwen2ForCausalLM", "Qwen2MoeForCausalLM",
                                                  "SeedOssForCausalLM", "Qwen2VLForConditionalGeneration",
                                                  "Qwen2_5_VLForConditionalGeneration"};
constexpr std::string_view kQwen2Gguf[] = {"qwen2", "qwen2moe", "seed_oss", "qwen2vl"};

ModelSpec build_qwen2(Config& c) {
  ModelSpec spec = decoder_spec(c);
  if (c.flag_or("use_sliding_window", c.has("layer_types"))) use_windows(c, spec, 0);
  if (c.size_or("num_local_experts", 0) == 0) return spec;
  MoeFfn ffn = moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Softmax;
  ffn.routing.normalize = c.flag_or("norm_topk_prob", false);
  ffn.shared_inner = c.size("shared_expert_intermediate_size");
  ffn.shared_gate = true;
  use_sparse_moe(c, spec, ffn);
  return spec;
}

}  // namespace

extern const Architecture qwen2{kQwen2HuggingFace, kQwen2Gguf, build_qwen2};

}  // namespace sluice::models::arch
