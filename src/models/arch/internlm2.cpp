// InternLM 2: the Llama shape under other names, rows of q, k and v grouped by key head.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kInternlm2HuggingFace[] = {"InternLM2ForCausalLM"};
constexpr std::string_view kInternlm2Gguf[] = {"internlm2"};

ModelSpec build_internlm2(Config& c) {
  ModelSpec spec = decoder_spec(c, RopeStyle::Interleaved);
  if (!c.is_gguf())
    spec.names = {{Slot::TokenEmbedding, "model.tok_embeddings"},
                  {Slot::OutputNorm, "model.norm"},
                  {Slot::Output, "output"},
                  {Slot::MixerNorm, "model.layers.{l}.attention_norm"},
                  {Slot::FfnNorm, "model.layers.{l}.ffn_norm"},
                  {Slot::Qkv, "model.layers.{l}.attention.wqkv", Fold::GroupedQkv},
                  {Slot::AttentionOut, "model.layers.{l}.attention.wo"},
                  {Slot::GateUp, "model.layers.{l}.feed_forward.w1"},
                  {Slot::GateUp, "model.layers.{l}.feed_forward.w3"},
                  {Slot::Down, "model.layers.{l}.feed_forward.w2"}};
  return spec;
}

}  // namespace

extern const Architecture internlm2{kInternlm2HuggingFace, kInternlm2Gguf, build_internlm2};

}  // namespace sluice::models::arch
