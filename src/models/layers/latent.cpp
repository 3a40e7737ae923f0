// Latent attention in its absorbed form: queries are brought into the latent space, so that one cached vector
// per token serves all heads as key and, in its first part, as value. A back-end may have operations of its own for it.
#include "kernels/latent.h"
#include "kernels/chosen_attention.h"
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

// The cached latents, whose first part are the values.
kernels::PagedKv latents_of(const LatentAttention& m, const kernels::PagedKv& kv) {
  kernels::PagedKv latents = kv;
  latents.v = kv.k;
  latents.v.shape[3] = m.latent;
  latents.v_scales = kv.k_scales;
  return latents;
}

// What a layer makes of its input first.
struct LatentInputs {
  TensorView latent;  // then the part that is rotated
  TensorView source;  // what an indexer makes its queries of: the query latent, or x
  TensorView query;   // [n, heads * (nope_dim + rope_dim)]
};

LatentInputs make_inputs(const LatentAttention& m, const LatentWeights& w, const LayerContext& c,
                         TensorView x) {
  const int64_t n = x.dim(0), key_dim = m.latent + m.rope_dim, first = w.in.rows - key_dim;
  const TensorView both = c.scratch.get(Buffer::Latent, n, w.in.rows);
  if (n > 0) c.backend.matmul(both, x, w.in);
  const TensorView latent = both.columns(first, w.in.rows), source = both.columns(0, first);
  if (m.q_latent == 0) return {latent, x, source};
  c.backend.rms_norm(source, source, w.query_norm.gain, m.norm_eps);
  const TensorView query = c.scratch.get(Buffer::Query, n, w.query_up.rows);
  if (n > 0) c.backend.matmul(query, source, w.query_up);
  return {latent, source, query};
}

// Norms and rotates the step's latents, stores them where this rank keeps them all, and rotates the queries.
void write_latents(const LatentAttention& m, const LayerContext& c, const kernels::RmsGain& norm,
                   const kernels::LatentRows& rows) {
  const kernels::PagedKv kv = latents_of(m, c.kv);
  const bool stores = c.shared_context == nullptr;
  if (auto* device = dynamic_cast<kernels::LatentDevice*>(&c.backend);
      stores && device != nullptr && m.rope >= 0 && device->write_latent(kv, rows, norm, c.batch))
    return;
  const TensorView compressed = rows.latent.columns(0, m.latent);
  c.backend.rms_norm(compressed, compressed, norm.gain, norm.eps);
  if (m.rope >= 0)
    c.backend.rope(rows.latent.columns_as_heads(m.latent, 1, m.rope_dim), rows.angles, rows.style);
  if (stores) c.backend.write_kv(kv, rows.latent.columns_as_heads(0, 1, m.latent + m.rope_dim), {}, c.batch);
  if (m.rope >= 0) c.backend.rope(part_of_heads(rows.query, m.nope_dim, m.rope_dim), rows.angles, rows.style);
}

// Brings the queries into the latent space.
void absorb(TensorView absorbed, TensorView query, const LatentAttention& m, const LatentWeights& w,
            const LayerContext& c) {
  c.backend.matmul_heads(part_of_heads(absorbed, 0, m.latent), part_of_heads(query, 0, m.nope_dim), w.key_up);
  c.backend.copy(part_of_heads(absorbed, m.latent, m.rope_dim), part_of_heads(query, m.nope_dim, m.rope_dim));
}

kernels::AttentionShape shape_of(const LatentAttention& m) {
  return {.heads = m.heads,
          .kv_heads = 1,
          .key_dim = m.latent + m.rope_dim,
          .value_dim = m.latent,
          .scale = m.scale};
}

// Returns [n, heads * value_dim].
TensorView attend(const kernels::LatentQueries& q, const LatentAttention& m, const LatentWeights& w,
                  const LayerContext& c, TensorView chosen) {
  const TensorView values = c.scratch.get(Buffer::Attended, q.query.dim(0), int64_t{m.heads} * m.value_dim);
  const TensorView out = values.columns_as_heads(0, m.heads, m.value_dim);
  const kernels::PagedKv kv = latents_of(m, c.kv);
  const kernels::LatentShape latent{.heads = m.heads,
                                    .latent = m.latent,
                                    .nope_dim = m.nope_dim,
                                    .rope_dim = m.rope_dim,
                                    .value_dim = m.value_dim,
                                    .scale = m.scale,
                                    .key_up = w.key_up,
                                    .value_up = w.value_up};
  if (auto* device = dynamic_cast<kernels::LatentDevice*>(&c.backend);
      device != nullptr && chosen.empty() && device->attend_latent(out, q, kv, c.batch, latent))
    return values;
  absorb(q.absorbed, q.query, m, w, c);
  const kernels::AttentionShape shape = shape_of(m);
  if (chosen.empty()) {
    c.backend.attend(q.mixed, q.absorbed, kv, c.batch, shape);
  } else {
    auto& device = dynamic_cast<kernels::ChosenAttention&>(c.backend);
    device.attend_chosen(q.mixed, q.absorbed, {kv, chosen.columns_as_heads(0, 1, chosen.dim(1))}, c.batch,
                         shape);
  }
  c.backend.matmul_heads(out, q.mixed, w.value_up);
  return values;
}

// As attend(), where ranks share the latents: queries and latents of the own tokens go to all of them.
TensorView attend_shared(const kernels::LatentRows& rows, const LatentAttention& m, const LatentWeights& w,
                         const LayerContext& c, TensorView chosen) {
  const int64_t n = rows.query.dim(0), key_dim = m.latent + m.rope_dim, width = m.heads * key_dim;
  const TensorView both = c.scratch.get(Buffer::LatentQuery, n, width + key_dim);
  if (n > 0) absorb(both.columns_as_heads(0, m.heads, key_dim), rows.query, m, w, c);
  c.backend.copy(both.columns(width, width + key_dim), rows.latent);
  const TensorView mixed =
      c.scratch.get(Buffer::LatentOut, n, m.heads * m.latent).columns_as_heads(0, m.heads, m.latent);
  const TensorView lists = chosen.empty() ? chosen : chosen.columns_as_heads(0, 1, chosen.dim(1));
  c.shared_context->attend(mixed, both, latents_of(m, c.kv), shape_of(m), {lists});
  const TensorView values = c.scratch.get(Buffer::Attended, n, int64_t{m.heads} * m.value_dim);
  if (n > 0) c.backend.matmul_heads(values.columns_as_heads(0, m.heads, m.value_dim), mixed, w.value_up);
  return values;
}

}  // namespace

std::optional<kernels::DeferredMatmul> run_mixer(const LatentAttention& m, const LatentWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  const int64_t n = x.dim(0);
  const int64_t key_dim = m.latent + m.rope_dim;
  const LatentInputs inputs = make_inputs(m, w, c, x);
  const TensorView query = inputs.query.columns_as_heads(0, m.heads, m.nope_dim + m.rope_dim);
  kernels::LatentRows rows{.latent = inputs.latent, .query = query, .angles = {}};
  if (m.rope >= 0) {
    rows.angles = c.angles[static_cast<size_t>(m.rope)];
    rows.style = c.spec.ropes[static_cast<size_t>(m.rope)].style;
  }
  write_latents(m, c, {w.latent_norm.gain, m.norm_eps}, rows);
  const TensorView chosen = choose_positions(m, w.indexer, c, x, inputs.source);
  scale_queries(m.temperature, c, inputs.query);
  if (c.shared_context != nullptr)
    return kernels::DeferredMatmul{attend_shared(rows, m, w, c, chosen), &w.out};

  const kernels::LatentQueries queries{
      query, c.scratch.get(Buffer::LatentQuery, n, m.heads * key_dim).columns_as_heads(0, m.heads, key_dim),
      c.scratch.get(Buffer::LatentOut, n, m.heads * m.latent).columns_as_heads(0, m.heads, m.latent)};
  return kernels::DeferredMatmul{attend(queries, m, w, c, chosen), &w.out};
}

}  // namespace sluice::models
