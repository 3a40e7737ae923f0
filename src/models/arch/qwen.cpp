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
    spec.names = {{Slot::TokenEmbedding, "transformer.wte"},
                  {Slot::OutputNorm, "transformer.ln_f"},
                  {Slot::Output, "lm_head"},
                  {Slot::MixerNorm, "transformer.h.{l}.ln_1"},
                  {Slot::FfnNorm, "transformer.h.{l}.ln_2"},
                  {Slot::Qkv, "transformer.h.{l}.attn.c_attn"},
                  {Slot::AttentionOut, "transformer.h.{l}.attn.c_proj"},
                  {Slot::GateUp, "transformer.h.{l}.mlp.w2"},
                  {Slot::GateUp, "transformer.h.{l}.mlp.w1"},
                  {Slot::Down, "transformer.h.{l}.mlp.c_proj"}};
  return spec;
}

}  // namespace

extern const Architecture qwen{kQwenHuggingFace, kQwenGguf, build_qwen};

}  // namespace sluice::models::arch
