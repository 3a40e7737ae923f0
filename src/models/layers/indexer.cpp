// Indexers: small keys of their own, cached beside the others, by which each token chooses the positions that it attends to.
// Factors that all scores share (1 / sqrt of heads and width) are left out: they change no choice.
#include "kernels/chosen_attention.h"
#include "models/layers/layers.h"

namespace sluice::models {

namespace {

constexpr float kIndexNormEps = 1e-6f;

kernels::ChosenAttention& chooser(const LayerContext& c) {
  auto* device = dynamic_cast<kernels::ChosenAttention*>(&c.backend);
  SLUICE_CHECK(device != nullptr);  // loading drops the indexers for others
  return *device;
}

// Keys of all tokens of the step, from those of the rank's own rows.
void write_index_keys(const LayerContext& c, TensorView own) {
  const TensorView all = c.all_rows(own);
  c.backend.write_kv(kernels::index_keys(c.kv), all.columns_as_heads(0, 1, all.dim(1)), {}, c.step_batch());
}

// Whether tokens of the step are to attend to chosen positions.
bool chooses_beyond(const LayerContext& c, int64_t positions) {
  if (!chooser(c).attends_alike()) return true;
  const kernels::RaggedBatch& batch = c.step_batch();
  for (int64_t i = 0; i < batch.tokens(); ++i)
    if (batch.last_seen(i) >= positions) return true;
  return false;
}

}  // namespace

TensorView choose_positions(const LatentAttention& m, const IndexerWeights& w, const LayerContext& c,
                            TensorView x, TensorView query_latent) {
  if (m.indexer.chosen == 0) return {};
  const int64_t n = x.dim(0);
  const bool chooses = chooses_beyond(c, m.indexer.chosen);
  const TensorView chosen =
      chooses ? c.scratch.get(Buffer::ChosenPositions, n, m.indexer.chosen, DType::I32) : TensorView();
  if (m.indexer.heads == 0) return chosen;
  const TensorView& angles = c.angles[static_cast<size_t>(m.rope)];
  const TensorView key = c.scratch.get(Buffer::IndexKey, n, m.indexer.dim);
  if (n > 0) c.backend.matmul(key, x, w.key);
  c.backend.layer_norm(key, key, w.key_norm.gain, w.key_norm.bias, kIndexNormEps);
  c.backend.rope(key.columns_as_heads(0, 1, m.indexer.dim), angles, m.indexer.style);
  write_index_keys(c, key);
  if (!chooses || n == 0) return chosen;

  const TensorView query = c.scratch.get(Buffer::IndexQuery, n, int64_t{m.indexer.heads} * m.indexer.dim);
  c.backend.matmul(query, query_latent, w.query);
  const TensorView heads = query.columns_as_heads(0, m.indexer.heads, m.indexer.dim);
  c.backend.rope(heads, angles, m.indexer.style);
  const TensorView weights = c.scratch.get(Buffer::IndexWeights, n, m.indexer.heads, DType::F32);
  c.backend.matmul(weights, x, w.weights);
  chooser(c).choose_positions(chosen, {heads, weights}, kernels::index_keys(c.kv), c.batch);
  return chosen;
}

TensorView choose_blocks(const Attention& m, const IndexerWeights& w, const LayerContext& c, TensorView x) {
  const BlockIndexer& indexer = m.indexer;
  if (indexer.chosen == 0) return {};
  const int64_t n = x.dim(0);
  const auto normed = [&](Buffer buffer, int64_t count, const Weight& weight, const Norm& norm) {
    const TensorView rows = c.scratch.get(buffer, n, count * indexer.dim);
    if (n > 0) c.backend.matmul(rows, x, weight);
    const TensorView heads = rows.columns_as_heads(0, count, indexer.dim);
    run_norm(c.backend, c.spec, heads, heads, norm);
    if (m.rope < 0) return rows;
    const auto rope = static_cast<size_t>(m.rope);
    c.backend.rope(heads, c.angles[rope], c.spec.ropes[rope].style);
    return rows;
  };
  write_index_keys(c, normed(Buffer::IndexKey, 1, w.key, w.key_norm));
  if (!chooses_beyond(c, indexer.positions())) return {};

  const TensorView chosen =
      c.scratch.get(Buffer::ChosenPositions, n, int64_t{indexer.heads} * indexer.chosen, DType::I32)
          .columns_as_heads(0, indexer.heads, indexer.chosen);
  if (n == 0) return chosen;
  const TensorView query = normed(Buffer::IndexQuery, indexer.heads, w.query, w.query_norm)
                               .columns_as_heads(0, indexer.heads, indexer.dim);
  chooser(c).choose_blocks(chosen, query, {indexer.size, indexer.local}, kernels::index_keys(c.kv), c.batch);
  return chosen;
}

}  // namespace sluice::models
