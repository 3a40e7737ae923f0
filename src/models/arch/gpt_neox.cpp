// GPT-NeoX and Pythia: mixer and feed-forward side by side with a layer norm each, partial rotation, rows of
// q, k and v grouped by head.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kGptNeoxHuggingFace[] = {"GPTNeoXForCausalLM"};
constexpr std::string_view kGptNeoxGguf[] = {"gptneox"};

ModelSpec build_gpt_neox(Config& c) {
  c.assume("partial_rotary_factor", 0.25);
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "gelu");
  if (c.flag_or("use_parallel_residual", true)) use_wiring(spec, Wiring::ParallelTwoNorms);
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "gpt_neox.embed_in"},
                  {WeightSlot::OutputNorm, "gpt_neox.final_layer_norm"},
                  {WeightSlot::Output, "embed_out"},
                  {WeightSlot::MixerNorm, "gpt_neox.layers.{l}.input_layernorm"},
                  {WeightSlot::FfnNorm, "gpt_neox.layers.{l}.post_attention_layernorm"},
                  {WeightSlot::Qkv, "gpt_neox.layers.{l}.attention.query_key_value", Fold::GroupedQkv},
                  {WeightSlot::AttentionOut, "gpt_neox.layers.{l}.attention.dense"},
                  {WeightSlot::GateUp, "gpt_neox.layers.{l}.mlp.dense_h_to_4h"},
                  {WeightSlot::Down, "gpt_neox.layers.{l}.mlp.dense_4h_to_h"}};
  return spec;
}

}  // namespace

extern const Architecture gpt_neox{kGptNeoxHuggingFace, kGptNeoxGguf, build_gpt_neox};

}  // namespace sluice::models::arch
