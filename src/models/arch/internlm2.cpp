// InternLM 2: the Llama shape under other names, rows of q, k and v grouped by key head.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kInternlm2HuggingFace[] = {"InternLM2ForCausalLM"};
constexpr std::string_view kInternlm2Gguf[] = {"internlm2"};

ModelSpec build_internlm2(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::GptJ);
  if (!c.is_gguf())
    spec.names = {{WeightSlot::TokenEmbedding, "model.tok_embeddings"},
                  {WeightSlot::OutputNorm, "model.norm"},
                  {WeightSlot::Output, "output"},
                  {WeightSlot::MixerNorm, "model.layers.{l}.attention_norm"},
                  {WeightSlot::FfnNorm, "model.layers.{l}.ffn_norm"},
                  {WeightSlot::Qkv, "model.layers.{l}.attention.wqkv", Fold::GroupedQkv},
                  {WeightSlot::AttentionOut, "model.layers.{l}.attention.wo"},
                  {WeightSlot::GateUp, "model.layers.{l}.feed_forward.w1"},
                  {WeightSlot::GateUp, "model.layers.{l}.feed_forward.w3"},
                  {WeightSlot::Down, "model.layers.{l}.feed_forward.w2"}};
  return spec;
}

}  // namespace

extern const Architecture internlm2{kInternlm2HuggingFace, kInternlm2Gguf, build_internlm2};

}  // namespace sluice::models::arch
