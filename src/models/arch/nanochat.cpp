// nanochat: norms without gains, on the embeddings too and on q and k after a rotation the other way round, a
// plain feed-forward of squared ReLU, capped logits.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kNanochatHuggingFace[] = {"NanoChatForCausalLM"};

ModelSpec build_nanochat(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.norm_gain = false;
  spec.embedding_norm = true;
  const float cap = c.is_null("final_logit_softcapping") ? 0.0f : 15.0f;
  spec.logit_softcap = c.number_or("final_logit_softcapping", cap);
  for (float& frequency : spec.ropes[0].inverse_frequency) frequency = -frequency;
  use_plain_ffn(c, spec, "relu2");
  for (LayerSpec& layer : spec.layers) {
    attention(layer).qk_norm = QkNorm::Scaleless;
    attention(layer).qk_norm_after_rope = true;
  }
  spec.names = spec.names.with(
      {{WeightSlot::GateUp, "model.layers.{l}.mlp.fc1"}, {WeightSlot::Down, "model.layers.{l}.mlp.fc2"}});
  return spec;
}

}  // namespace

extern const Architecture nanochat{kNanochatHuggingFace, {}, build_nanochat};

}  // namespace sluice::models::arch
