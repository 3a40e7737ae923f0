#include <cmath>

#include "kernels/chosen_attention.h"
#include "kernels/head_norm.h"
#include "models/layers/layers.h"
#include "models/layers/split_norm.h"

namespace sluice::models {

namespace {

void norm_heads(const Attention& m, const LayerContext& c, TensorView heads, TensorView whole,
                const Norm& norm) {
  if (m.qk_norm == QkNorm::Whole) {
    run_norm(c.backend, c.spec, whole, whole, norm);
  } else if (m.qk_norm == QkNorm::EachHead) {
    for (int64_t begin = 0; begin < whole.dim(1); begin += m.head_dim) {
      const TensorView head = whole.columns(begin, begin + m.head_dim);
      run_norm(c.backend, c.spec, head, head, {norm.gain.rows(begin, begin + m.head_dim), {}});
    }
  } else {
    run_norm(c.backend, c.spec, heads, heads, norm);
  }
}

// Queries, and keys where they are the layer's own, by the heads of all ranks.
void norm_over_ranks(const Attention& m, const AttentionWeights& w, const LayerContext& c, TensorView q,
                     TensorView k) {
  const Share& share = c.tensor_group->placement().tensor;
  const SplitNorm both[] = {{.x = q, .gain = w.q_norm.gain, .row_width = q.dim(1) * share.size},
                            {.x = k,
                             .gain = w.k_norm.gain,
                             .row_width = k.empty() ? 0 : k.dim(1) * share.size / m.kv_copies,
                             .row = 1,
                             .counts = share.index % m.kv_copies == 0}};
  const size_t count = k.empty() ? 1 : 2;
  run_split_norms(c, std::span(both).first(count), static_cast<int>(count), c.spec.norm_eps);
}

// Whether the back-end normed, rotated and stored the heads in one operation.
bool write_normed(const Attention& m, const AttentionWeights& w, const LayerContext& c,
                  const kernels::QkvHeads& heads) {
  const bool plain = m.qk_norm == QkNorm::PerHead && !m.qk_norm_after_rope && m.kv_from < 0 && m.rope >= 0 &&
                     m.clip <= 0.0f && !m.norm_values && c.spec.norm == NormKind::Rms;
  auto* device = plain ? dynamic_cast<kernels::HeadNormDevice*>(&c.backend) : nullptr;
  if (device == nullptr) return false;
  const auto rope = static_cast<size_t>(m.rope);
  return device->norm_rope_write_kv(c.kv, {heads, w.q_norm.gain, w.k_norm.gain, c.spec.norm_eps},
                                    c.angles[rope], c.spec.ropes[rope].style, c.batch);
}

// Norms and rotates a step's heads, and stores them where this rank keeps them all.
void write_heads(const Attention& m, const AttentionWeights& w, const LayerContext& c, TensorView qkv,
                 const kernels::QkvHeads& heads) {
  const bool stores = m.kv_from < 0 && c.shared_context == nullptr;
  if (stores && write_normed(m, w, c, heads)) return;
  const TensorView &q = heads.q, &k = heads.k, &v = heads.v;
  const int64_t q_width = int64_t{m.heads} * m.head_dim, kv_width = int64_t{m.kv_heads} * m.head_dim;
  const bool own_kv = m.kv_from < 0;
  const auto norm_both = [&] {
    if (m.qk_norm == QkNorm::None) return;
    if (m.qk_norm == QkNorm::Whole && c.tensor_group != nullptr)
      return norm_over_ranks(m, w, c, qkv.columns(0, q_width),
                             own_kv ? qkv.columns(q_width, q_width + kv_width) : TensorView());
    norm_heads(m, c, q, qkv.columns(0, q_width), w.q_norm);
    if (own_kv) norm_heads(m, c, k, qkv.columns(q_width, q_width + kv_width), w.k_norm);
  };
  if (!m.qk_norm_after_rope) norm_both();
  if (m.clip > 0.0f && m.clip_after_norm) c.backend.clamp(qkv, m.clip);
  if (m.norm_values && own_kv) c.backend.rms_norm(v, v, {}, c.spec.norm_eps);
  const TensorView angles = m.rope >= 0 ? c.angles[static_cast<size_t>(m.rope)] : TensorView();
  const RopeStyle style = m.rope >= 0 ? c.spec.ropes[static_cast<size_t>(m.rope)].style : RopeStyle::NeoX;
  if (stores && m.rope >= 0 && !m.qk_norm_after_rope)
    return c.backend.rope_write_kv(c.kv, heads, angles, style, c.batch);
  if (m.rope >= 0) c.backend.rope(q, angles, style);
  if (m.rope >= 0 && own_kv) c.backend.rope(k, angles, style);
  if (m.qk_norm_after_rope) norm_both();
  if (stores) c.backend.write_kv(c.kv, k, v, c.batch);
}

// Multiplies every head of what was attended to by its gate.
void gate_heads(const Attention& m, const AttentionWeights& w, const LayerContext& c, TensorView attended,
                TensorView x) {
  const TensorView gates = c.scratch.get(Buffer::Gated, x.dim(0), m.heads);
  c.backend.matmul(gates, x, w.gate);
  const auto as_rows = [](TensorView view, int64_t width) {
    return TensorView::contiguous(view.data, view.dtype, {view.dim(0) * view.dim(1) / width, width},
                                  view.device);
  };
  c.backend.gate_rows(as_rows(attended, m.values()), as_rows(gates, 1), m.gate);
}

}  // namespace

// Runs of tokens with the same factor are scaled together.
void scale_queries(const AttentionTemperature& t, const LayerContext& c, TensorView q) {
  if (!(t.slope > 0.0f) || t.length <= 0) return;
  const auto step = [&](int64_t token) {
    return (c.batch.positions[static_cast<size_t>(token)] + t.offset) / t.length;
  };
  for (int64_t begin = 0, end = 0; begin < q.dim(0); begin = end) {
    while (end < q.dim(0) && step(end) == step(begin)) ++end;
    if (step(begin) > 0)
      c.backend.scale(q.rows(begin, end), 1.0f + t.slope * std::log(1.0f + static_cast<float>(step(begin))));
  }
}

int64_t qkv_row(const Attention& m, const AttentionWeights& w) {
  return w.qkv.rows + (m.gate_beside_qkv() ? int64_t{m.heads} * m.values() : 0);
}

std::optional<kernels::DeferredMatmul> run_mixer(const Attention& m, const AttentionWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  const int64_t n = x.dim(0);
  const int64_t q_width = int64_t{m.heads} * m.head_dim, kv_width = int64_t{m.kv_heads} * m.head_dim;
  const int64_t width = int64_t{m.heads} * m.values();
  const bool own_kv = m.kv_from < 0, beside = m.gate_beside_qkv();
  // Queries, keys and values; gates beside them stand before room for what they multiply.
  const int64_t made = w.qkv.rows, qkv_width = beside ? made - width : made;
  const TensorView wide = c.scratch.get(Buffer::Qkv, n, qkv_row(m, w));
  const TensorView qkv = wide.columns(0, qkv_width);
  if (n > 0) c.backend.matmul(wide.columns(0, made), x, w.qkv);
  if (n > 0) run_adapter(w.qkv_adapter, c, qkv, x);
  if (m.input_scale != 1.0f) c.backend.scale(qkv, m.input_scale);
  if (m.key_scale != 1.0f && own_kv) c.backend.scale(qkv.columns(q_width, q_width + kv_width), m.key_scale);
  if (m.value_scale != 1.0f && own_kv)
    c.backend.scale(qkv.columns(q_width + kv_width, qkv.dim(1)), m.value_scale);
  if (m.clip > 0.0f && !m.clip_after_norm) c.backend.clamp(qkv, m.clip);

  const TensorView q = qkv.columns_as_heads(0, m.heads, m.head_dim);
  const TensorView k = own_kv ? qkv.columns_as_heads(q_width, m.kv_heads, m.head_dim) : TensorView();
  const TensorView v =
      own_kv ? qkv.columns_as_heads(q_width + kv_width, m.kv_heads, m.values()) : TensorView();
  write_heads(m, w, c, qkv, {q, k, v});
  scale_queries(m.temperature, c, qkv.columns(0, q_width));
  const TensorView chosen = choose_blocks(m, w.indexer, c, x);

  const kernels::AttentionShape shape{.heads = m.heads,
                                      .kv_heads = m.kv_heads,
                                      .key_dim = m.head_dim,
                                      .value_dim = m.values(),
                                      .scale = m.scale,
                                      .window = m.window,
                                      .chunked = m.chunked,
                                      .softcap = m.softcap,
                                      .sinks = w.sinks,
                                      .alibi = w.alibi};
  // A gate stands before what it multiplies.
  const bool whole_gate = m.gated && !m.gate_per_head;
  const TensorView attended = beside ? wide.columns(qkv_width, made + width)
                                     : c.scratch.get(Buffer::Attended, n, whole_gate ? 2 * width : width);
  const TensorView out = attended.columns_as_heads(whole_gate ? width : 0, m.heads, m.values());
  if (c.shared_context != nullptr) {
    c.shared_context->attend(out, qkv, c.kv, shape, {chosen, m.indexer.size});
  } else if (!chosen.empty()) {
    auto& device = dynamic_cast<kernels::ChosenAttention&>(c.backend);
    device.attend_chosen(out, q, {c.kv, chosen, m.indexer.size}, c.batch, shape);
  } else {
    c.backend.attend(out, q, c.kv, c.batch, shape);
  }
  if (n == 0) return kernels::DeferredMatmul{attended.columns(0, width), &w.out};
  if (m.norm_output) run_norm_of_columns(c, attended, w.out_norm);
  if (m.gated && m.gate_per_head) gate_heads(m, w, c, attended, x);
  if (!whole_gate) return kernels::DeferredMatmul{attended, &w.out};
  if (!beside) c.backend.matmul(attended.columns(0, width), x, w.gate);
  const TensorView kept = c.scratch.get(Buffer::Gated, n, width);
  c.backend.gated(kept, attended, m.gate);
  return kernels::DeferredMatmul{kept, &w.out};
}

}  // namespace sluice::models
