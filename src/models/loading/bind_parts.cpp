#include "models/loading/bind_parts.h"

#include <algorithm>

namespace sluice::models {

namespace {

Norm gain_alone(Binder& binder, WeightSlot slot, int64_t width) {
  return {binder.vector(slot, width), {}};
}

Weight ones(Binder& binder, int64_t width) {
  HostTensor row = HostTensor::make(DType::F32, {1, width});
  std::fill_n(row.view.at<float>(), width, 1.0f);
  return binder.prepared({{binder.keep(std::move(row))}, 1, width, {}, {}});
}

}  // namespace

Adapter bind_adapter(Binder& binder, const ModelSpec& spec, const Attention& m, int number,
                     const Cutter& cutter) {
  if (m.adapter_rank == 0) return {};
  const int64_t rank = m.adapter_rank, read = m.input_dim > 0 ? m.input_dim : spec.dim;
  const auto up = [&](WeightSlot slot, int heads, int width, Range own) {
    return binder.matrix(slot, {int64_t{heads} * width, rank}, cutter.rows({scaled(own, width)}), number);
  };
  const Range heads = cutter.share.of(m.heads), kv_heads = shared_of(m.kv_heads, cutter.share);
  return {binder.matrix(WeightSlot::QkvAdapterDown, {3 * rank, read}, {}, number),
          {up(WeightSlot::QueryAdapterUp, m.heads, m.head_dim, heads),
           up(WeightSlot::KeyAdapterUp, m.kv_heads, m.head_dim, kv_heads),
           up(WeightSlot::ValueAdapterUp, m.kv_heads, m.values(), kv_heads)}};
}

Adapter bind_adapter(Binder& binder, const ModelSpec& spec, const DenseFfn& f, int number,
                     const Cutter& cutter) {
  if (f.adapter_rank == 0) return {};
  const int64_t rank = f.adapter_rank;
  const int up = f.gated ? 2 : 1;
  return {binder.matrix(WeightSlot::GateUpAdapterDown, {rank, spec.dim}, {}, number),
          {binder.matrix(WeightSlot::GateUpAdapterUp, {int64_t{f.inner} * up, rank},
                         cutter.stacked_rows(f.inner, up), number)}};
}

IndexerWeights bind_indexer(Binder& binder, const ModelSpec& spec, const LatentAttention& m) {
  const int64_t heads = m.indexer.heads, width = m.indexer.dim;
  return {.query = binder.matrix(WeightSlot::IndexQuery, {heads * width, m.q_latent}),
          .key = binder.matrix(WeightSlot::IndexKey, {width, spec.dim}),
          .key_norm = {binder.vector(WeightSlot::IndexKeyNorm, width),
                       binder.optional_vector(WeightSlot::IndexKeyNorm, width, ".bias")},
          .weights = binder.matrix(WeightSlot::IndexWeights, {heads, spec.dim})};
}

IndexerWeights bind_indexer(Binder& binder, const ModelSpec& spec, const Attention& m, const Cut& rows) {
  const int64_t heads = m.indexer.heads, width = m.indexer.dim;
  return {.query = binder.matrix(WeightSlot::IndexQuery, {heads * width, spec.dim}, rows),
          .key = binder.matrix(WeightSlot::IndexKey, {width, spec.dim}),
          .key_norm = bind_norm(binder, spec, WeightSlot::IndexKeyNorm, width),
          .weights = {},
          .query_norm = bind_norm(binder, spec, WeightSlot::IndexQueryNorm, width)};
}

StreamWeights bind_streams(Binder& binder, const ModelSpec& spec) {
  const int64_t dim = spec.dim, count = spec.streams.count, rank = spec.streams.laurel_rank;
  StreamWeights w;
  w.router = binder.matrix(WeightSlot::StreamRouter, {count, dim});
  std::vector<float> gain = binder.host_vector(WeightSlot::StreamRouterNorm, dim);
  if (gain.empty()) binder.fail("stream router norm: the file has nothing");
  for (float& value : gain) value /= static_cast<float>(dim);
  w.router_norm.gain = binder.upload(gain);
  w.prediction = binder.matrix(WeightSlot::StreamPrediction, {count * count, count});
  w.correction = binder.matrix(WeightSlot::StreamCorrection, {count, count});
  const TensorView scale = binder.vector(WeightSlot::StreamScale, dim);
  w.scale = TensorView::contiguous(scale.data, scale.dtype, {1, dim}, scale.device);
  w.laurel_left = binder.matrix(WeightSlot::LaurelLeft, {rank, dim});
  w.laurel_right = binder.matrix(WeightSlot::LaurelRight, {dim, rank});
  w.laurel_norm = gain_alone(binder, WeightSlot::LaurelNorm, dim);
  return w;
}

void bind_stream_ends(Binder& binder, const ModelSpec& spec, ModelWeights& w) {
  const int others = spec.streams.count - 1;
  w.stream_projections = binder.bank(WeightSlot::StreamProjections, others, {spec.dim, spec.dim});
  w.stream_unprojections = binder.bank(WeightSlot::StreamUnprojections, others, {spec.dim, spec.dim});
  w.ones = ones(binder, spec.dim);
}

void bind_cutoff(Binder& binder, const DenseFfn& f, DenseWeights& w) {
  w.ones = ones(binder, f.inner);
  w.cutoff = binder.upload(std::vector<float>(static_cast<size_t>(f.inner), -f.cutoff));
}

int join_shared_experts(Binder& binder, const ModelSpec& spec, const MoeFfn& f, kernels::ExpertBank& bank) {
  const bool alike = f.shared_inner > 0 && f.shared_inner % f.inner == 0 && f.shared_limit == f.limit &&
                     f.latent == 0 && !f.weigh_inputs && !(f.shared_gate && f.router_softcap > 0.0f);
  if (!alike || !binder.joins_shared_experts() || !binder.status()) return 0;
  const auto like = [&](WeightSlot slot, const std::vector<Weight>& routed) {
    const std::optional<TensorView> stored = binder.stored(slot);
    return stored && !is_block(stored->dtype) && std::ranges::all_of(routed, [&](const Weight& weight) {
             return std::ranges::all_of(weight.parts,
                                        [&](const TensorView& part) { return part.dtype == stored->dtype; });
           });
  };
  if (!like(WeightSlot::SharedGateUp, bank.gate_up) || !like(WeightSlot::SharedDown, bank.down)) return 0;
  const int count = f.shared_inner / f.inner, stacked = f.gated ? 2 : 1;
  for (int i = 0; i < count; ++i) {
    const Range own = scaled({i, i + 1}, f.inner);
    Cut up{.rows = {own}, .cols = {}};
    if (f.gated) up.rows.push_back(scaled({i, i + 1}, f.inner, f.shared_inner));
    const Cut down{.rows = {}, .cols = {own}, .bias = i == 0};
    bank.gate_up.push_back(
        binder.listed_matrix(WeightSlot::SharedGateUp, {int64_t{f.shared_inner} * stacked, spec.dim}, up));
    bank.down.push_back(binder.listed_matrix(WeightSlot::SharedDown, {spec.dim, f.shared_inner}, down));
  }
  return count;
}

kernels::RopeTable bind_rope(Binder& binder, const Rope& rope) {
  std::vector<float> rows = rope.inverse_frequency;
  rows.insert(rows.end(), rope.beyond.begin(), rope.beyond.end());
  const auto pairs = static_cast<int64_t>(rope.inverse_frequency.size());
  const TensorView flat = binder.upload(rows);
  return {TensorView::contiguous(flat.data, flat.dtype, {flat.elements() / pairs, pairs}, flat.device),
          rope.limit, rope.magnitude, rope.magnitude_beyond, rope.sections};
}

}  // namespace sluice::models
