// ChatGLM 2 and 3 and GLM 4 (9B) as first published: fused q, k, v and gate-up, half of each head rotated in
// neighbouring pairs.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kChatglmHuggingFace[] = {"ChatGLMModel", "ChatGLMForConditionalGeneration"};

ModelSpec build_chatglm(Config& c) {
  if (!c.flag_or("rmsnorm", true)) c.fail("'rmsnorm' is false, which is not supported");
  c.assume("partial_rotary_factor", 0.5);
  c.assume("intermediate_size", c.size_or("ffn_hidden_size", 0));
  c.assume("rope_theta", 10000.0 * static_cast<double>(c.number_or("rope_ratio", 1.0f)));
  ModelSpec spec = decoder_spec(c);
  spec.ropes[0].style = RopeStyle::GptJ;
  if (!c.flag_or("multi_query_attention", true)) use_kv_per_head(spec);
  spec.names = {{WeightSlot::TokenEmbedding, "transformer.embedding.word_embeddings"},
                {WeightSlot::OutputNorm, "transformer.encoder.final_layernorm"},
                {WeightSlot::Output, "transformer.output_layer"},
                {WeightSlot::MixerNorm, "transformer.encoder.layers.{l}.input_layernorm"},
                {WeightSlot::FfnNorm, "transformer.encoder.layers.{l}.post_attention_layernorm"},
                {WeightSlot::Qkv, "transformer.encoder.layers.{l}.self_attention.query_key_value"},
                {WeightSlot::AttentionOut, "transformer.encoder.layers.{l}.self_attention.dense"},
                {WeightSlot::GateUp, "transformer.encoder.layers.{l}.mlp.dense_h_to_4h"},
                {WeightSlot::Down, "transformer.encoder.layers.{l}.mlp.dense_4h_to_h"}};
  return spec;
}

}  // namespace

extern const Architecture chatglm{kChatglmHuggingFace, {}, build_chatglm};

}  // namespace sluice::models::arch
