// Persimmon: layer norms, also on each query and key, rows of q, k and v grouped by head, half of each head
// rotated, a plain feed-forward of squared ReLU.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kPersimmonHuggingFace[] = {"PersimmonForCausalLM"};

ModelSpec build_persimmon(Config& c) {
  c.assume("partial_rotary_factor", 0.5);
  ModelSpec spec = decoder_spec(c);
  spec.norm = NormKind::Layer;
  use_kv_per_head(spec);
  use_plain_ffn(c, spec, "relu2");
  for (LayerSpec& layer : spec.layers)
    if (c.flag_or("qk_layernorm", true)) attention(layer).qk_norm = QkNorm::PerHead;
  spec.names =
      spec.names.with({{WeightSlot::OutputNorm, "model.final_layernorm"},
                       {WeightSlot::Qkv, "model.layers.{l}.self_attn.query_key_value", Fold::GroupedQkv},
                       {WeightSlot::QNorm, "model.layers.{l}.self_attn.q_layernorm"},
                       {WeightSlot::KNorm, "model.layers.{l}.self_attn.k_layernorm"},
                       {WeightSlot::AttentionOut, "model.layers.{l}.self_attn.dense"},
                       {WeightSlot::GateUp, "model.layers.{l}.mlp.dense_h_to_4h"},
                       {WeightSlot::Down, "model.layers.{l}.mlp.dense_4h_to_h"}});
  return spec;
}

}  // namespace

extern const Architecture persimmon{kPersimmonHuggingFace, {}, build_persimmon};

}  // namespace sluice::models::arch
