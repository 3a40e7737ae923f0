// Step 3.5 and 3.7 (text): a gate for each head, more heads in the layers with a window, a rope for each kind of layer,
// experts by sigmoid beside a shared one, both clamped where the config says so.
#include <cmath>

#include "models/family.h"
#include "models/loading/config/published.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kStep3HuggingFace[] = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"};
constexpr std::string_view kStep3Gguf[] = {"step35"};

float limit_of(const std::vector<double>& limits, size_t layer) {
  return layer < limits.size() ? static_cast<float>(limits[layer]) : 0.0f;
}

ModelSpec build_step3(Config& c) {
  if (!c.is_gguf()) read_published_step3(c);
  c.assume("first_k_dense_replace", 3);
  const std::vector<int> heads = c.is_gguf() ? c.take_sizes("num_attention_heads") : std::vector<int>();
  ModelSpec spec = decoder_spec(c);
  if (c.is_gguf() || c.has("layer_types")) use_windows(c, spec, 1);
  const int head_dim = attention(spec.layers[0]).head_dim;
  c.is_gguf() ? use_ropes_of_file(c, spec, head_dim / 2, head_dim) : use_ropes_by_kind(c, spec, {});
  MoeFfn experts = grouped_moe_ffn(c);
  experts.routing.normalize = true;
  experts.routing.scale = c.number_or("moe_router_scaling_factor", experts.routing.scale);
  experts.shared_inner = c.size_or("share_expert_dim", c.is_gguf() ? experts.shared_inner : 1280);
  use_moe(c, spec, experts);
  const std::vector<double> limits = c.numbers("swiglu_limits"), shared = c.numbers("swiglu_limits_shared");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    if (i < heads.size()) mixer.heads = heads[i];
    if (mixer.window > 0)
      mixer.heads = c.sub("attention_other_setting").size_or("num_attention_heads", mixer.heads);
    mixer.heads =
        c.sub("per_layer_config").sub(std::to_string(i)).size_or("num_attention_heads", mixer.heads);
    mixer.qk_norm = QkNorm::PerHead;
    mixer.gated = mixer.gate_per_head = true;
    mixer.scale = 1.0f / std::sqrt(c.number_or("query_pre_attn_scalar", static_cast<float>(mixer.head_dim)));
    check_heads(c, mixer);
    auto* mixture = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (mixture != nullptr) mixture->limit = limit_of(limits, i);
    (mixture != nullptr ? mixture->shared_limit : std::get<DenseFfn>(spec.layers[i].ffn).limit) =
        limit_of(shared, i);
  }
  if (c.is_gguf()) return spec;  // whose gains have their 1
  spec.names = spec.names.folded({WeightSlot::MixerNorm, WeightSlot::FfnNorm, WeightSlot::OutputNorm,
                                  WeightSlot::QNorm, WeightSlot::KNorm},
                                 Fold::AddOne);
  return spec;
}

}  // namespace

extern const Architecture step3{kStep3HuggingFace, kStep3Gguf, build_step3};

}  // namespace sluice::models::arch
