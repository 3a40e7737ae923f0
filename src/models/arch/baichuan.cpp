// Baichuan 1 and 2: the Llama shape with fused q, k and v; the 13B models have linear position biases instead
// of rotation, and 2 norms the rows of its output matrix.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kBaichuanHuggingFace[] = {"BaichuanForCausalLM", "BaiChuanForCausalLM"};
constexpr std::string_view kBaichuanGguf[] = {"baichuan"};

ModelSpec build_baichuan(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  use_kv_per_head(spec);
  const bool linear_biases = spec.layers.size() == 40;  // 13B: no key of the config says so
  for (LayerSpec& layer : spec.layers) {
    if (!linear_biases) continue;
    attention(layer).rope = -1;
    attention(layer).alibi = 8.0f;
  }
  if (c.is_gguf()) return spec;
  spec.names = spec.names.with({{WeightSlot::Qkv, "model.layers.{l}.self_attn.W_pack"}});
  if (spec.vocab == 125696)  // Baichuan 2
    spec.names = spec.names.folded({WeightSlot::Output}, Fold::UnitRows);
  return spec;
}

}  // namespace

extern const Architecture baichuan{kBaichuanHuggingFace, kBaichuanGguf, build_baichuan};

}  // namespace sluice::models::arch
