// Layers that a back-end may run as one operation.
#include <algorithm>

#include "kernels/layer_stack.h"
#include "models/decoder/decoder.h"

namespace sluice::models {

namespace {

bool is_plain(const Attention& m) {
  const bool heads = m.values() == m.head_dim && m.kv_from < 0 && !m.values_are_keys && !m.norm_values;
  const bool scores = m.window == 0 && !m.chunked && m.softcap == 0.0f && !m.sinks && m.alibi == 0.0f &&
                      !(m.temperature.slope > 0.0f);
  const bool norms = (m.qk_norm == QkNorm::None || m.qk_norm == QkNorm::PerHead) && !m.qk_norm_after_rope;
  const bool scales = m.clip == 0.0f && m.input_scale == 1.0f && m.key_scale == 1.0f && m.value_scale == 1.0f;
  return heads && scores && norms && scales && m.input_dim == 0 && m.rope >= 0 && !m.gated &&
         !m.norm_output && m.adapter_rank == 0 && m.indexer.chosen == 0;
}

bool is_plain(const DenseFfn& f) {
  return f.gated && f.activation == Activation::Silu && !f.norm_inner && f.gate_scale == 1.0f &&
         f.scale == 1.0f && f.limit == 0.0f && f.adapter_rank == 0 && !f.cuts_off();
}

// What all layers of a stack have in common.
bool alike(const Attention& a, const Attention& b) {
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.scale == b.scale &&
         a.rope == b.rope && a.qk_norm == b.qk_norm;
}

}  // namespace

bool is_dense_stack(const ModelSpec& spec) {
  if (spec.norm != NormKind::Rms || !spec.norm_gain || spec.residual_scale != 1.0f ||
      spec.streams.count > 0 || spec.per_layer_embedding > 0 || spec.layers.empty())
    return false;
  const auto* attention = std::get_if<Attention>(&spec.layers.front().mixer);
  const auto* ffn = std::get_if<DenseFfn>(&spec.layers.front().ffn);
  if (attention == nullptr || ffn == nullptr) return false;
  return std::all_of(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& layer) {
    const auto* m = std::get_if<Attention>(&layer.mixer);
    const auto* f = std::get_if<DenseFfn>(&layer.ffn);
    return m != nullptr && f != nullptr && layer.wiring == Wiring::PreNorm && !layer.scaled && is_plain(*m) &&
           is_plain(*f) && alike(*m, *attention) && f->inner == ffn->inner;
  });
}

void Decoder::find_stack_device() {
  if (group_ == nullptr && is_dense_stack(spec_))
    stack_device_ = dynamic_cast<kernels::LayerStackDevice*>(&backend_);
}

bool Decoder::run_stack(const StepInput& input) {
  if (stack_device_ == nullptr || !taps_.empty() || !query_rows_.empty() || !input.embedded.empty())
    return false;
  const auto& attention = std::get<Attention>(spec_.layers.front().mixer);
  const bool normed = attention.qk_norm == QkNorm::PerHead;
  std::vector<kernels::DenseLayer>& layers = stack_layers_;
  layers.resize(spec_.layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerWeights& w = weights_.layers[i];
    const auto& mixer = std::get<AttentionWeights>(w.mixer);
    const auto& ffn = std::get<DenseWeights>(w.ffn);
    if (normed && (mixer.q_norm.gain.empty() || mixer.k_norm.gain.empty())) return false;
    layers[i] = {&mixer.qkv,      &mixer.out,        &ffn.gate_up,      &ffn.down,  w.mixer_norm.gain,
                 w.ffn_norm.gain, mixer.q_norm.gain, mixer.k_norm.gain, input.kv[i]};
  }
  kernels::LayerStack stack;
  stack.layers = layers;
  stack.attention.heads = attention.heads;
  stack.attention.kv_heads = attention.kv_heads;
  stack.attention.key_dim = stack.attention.value_dim = attention.head_dim;
  stack.attention.scale = attention.scale;
  stack.inner = std::get<DenseFfn>(spec_.layers.front().ffn).inner;
  stack.eps = spec_.norm_eps;
  const auto rope = static_cast<size_t>(attention.rope);
  stack.style = spec_.ropes[rope].style;
  return stack_device_->run_layers(stream_, stack, angles_[rope], input.batch);
}

}  // namespace sluice::models
