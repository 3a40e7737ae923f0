// Latent attention in its absorbed form: queries are brought into the latent space, so that one cached vector
// per token serves all heads as key and, in its first part, as value.
#include "models/layers/layers.h"

namespace sluice::models {

namespace {

// The columns [begin, begin + width) of every head.
TensorView part_of_heads(TensorView heads, int64_t begin, int64_t width) {
  TensorView part = heads;
  part.shape[2] = width;
  part.data = static_cast<std::byte*>(heads.data) + row_bytes(heads.dtype, begin);
  return part;
}

TensorView make_query(const LatentAttention& m, const LatentWeights& w, const LayerContext& c, TensorView x) {
  const int64_t n = x.dim(0);
  TensorView source = x;
  if (m.q_latent > 0) {
    source = c.scratch.get(Buffer::QueryLatent, n, m.q_latent);
    c.backend.matmul(source, x, w.query_down);
    c.backend.rms_norm(source, source, w.query_norm.gain, m.norm_eps);
  }
  const TensorView query = c.scratch.get(Buffer::Query, n, w.query_up.rows);
  c.backend.matmul(query, source, w.query_up);
  return query.columns_as_heads(0, m.heads, m.nope_dim + m.rope_dim);
}

}  // namespace

std::optional<kernels::DeferredMatmul> run_mixer(const LatentAttention& m, const LatentWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  const int64_t n = x.dim(0);
  const int64_t key_dim = m.latent + m.rope_dim;
  const RopeStyle style = c.spec.ropes[static_cast<size_t>(m.rope)].style;
  const TensorView angles = c.angles[static_cast<size_t>(m.rope)];

  const TensorView latent = c.scratch.get(Buffer::Latent, n, key_dim);
  c.backend.matmul(latent, x, w.latent_down);
  const TensorView compressed = latent.columns(0, m.latent);
  c.backend.rms_norm(compressed, compressed, w.latent_norm.gain, m.norm_eps);
  c.backend.rope(latent.columns_as_heads(m.latent, 1, m.rope_dim), angles, style);
  c.backend.write_kv(c.kv, latent.columns_as_heads(0, 1, key_dim), {}, c.batch);

  const TensorView query = make_query(m, w, c, x);
  const TensorView whole = c.scratch.get(Buffer::LatentQuery, n, m.heads * key_dim);
  const TensorView absorbed = whole.columns_as_heads(0, m.heads, key_dim);
  c.backend.matmul_heads(part_of_heads(absorbed, 0, m.latent), part_of_heads(query, 0, m.nope_dim), w.key_up);
  const TensorView turned = part_of_heads(query, m.nope_dim, m.rope_dim);
  c.backend.rope(turned, angles, style);
  c.backend.copy(part_of_heads(absorbed, m.latent, m.rope_dim), turned);
  scale_queries(m.temperature, c, whole);

  const TensorView mixed =
      c.scratch.get(Buffer::LatentOut, n, m.heads * m.latent).columns_as_heads(0, m.heads, m.latent);
  const kernels::AttentionShape shape{.heads = m.heads,
                                      .kv_heads = 1,
                                      .key_dim = static_cast<int>(key_dim),
                                      .value_dim = m.latent,
                                      .scale = m.scale};
  c.backend.attend(mixed, absorbed, c.kv, c.batch, shape);
  const TensorView values = c.scratch.get(Buffer::Attended, n, m.heads * m.value_dim);
  c.backend.matmul_heads(values.columns_as_heads(0, m.heads, m.value_dim), mixed, w.value_up);
  return kernels::DeferredMatmul{values, &w.out};
}

}  // namespace sluice::models
