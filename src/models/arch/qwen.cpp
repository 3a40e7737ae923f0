// Qwen 1: the Llama shape under other names, with biases on q, k and v and a feed-forward width that counts
// gate and up.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kQwenHuggingFace[] = {"QWenLMHeadModel"};
constexpr std::string_view kQwenGguf[] = {"qwen"};

ModelSpec build_qwen(Config& c) {
  ModelSpec spec = decoder_spec(c);
  use_kv_per_head(spec);
  for (LayerSpec& layer : spec.layers) std::get<DenseFfn>(layer.ffn).inner /= 2;
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "transformer.wte"},
                  {WeightSlot::OutputNorm, "transformer.ln_f"},
                  {WeightSlot::Output, "lm_head"},
                  {WeightSlot::MixerNorm, "transformer.h.{l}.ln_1"},
                  {WeightSlot::FfnNorm, "transformer.h.{l}.ln_2"},
                  {WeightSlot::Qkv, "transformer.h.{l}.attn.c_attn"},
                  {WeightSlot::AttentionOut, "transformer.h.{l}.attn.c_proj"},
                  {WeightSlot::GateUp, "transformer.h.{l}.mlp.w2"},
                  {WeightSlot::GateUp, "transformer.h.{l}.mlp.w1"},
                  {WeightSlot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture qwen{kQwenHuggingFace, kQwenGguf, build_qwen};

}  // namespace sluice::models::arch
