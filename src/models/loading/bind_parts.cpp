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

ShortConvWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ShortConv& m) {
  const int64_t dim = spec.dim;
  return {.in = binder.matrix(WeightSlot::MixerIn, {3 * dim, dim}),
          .conv = binder.convolution(m.taps, dim),
          .out = binder.matrix(WeightSlot::MixerOut, {dim, dim})};
}

DeltaWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const GatedDelta& m) {
  const int64_t dim = spec.dim, decays = m.channel_decay ? m.value_heads * m.key_dim : m.value_heads;
  const int64_t from = m.gate_latent > 0 ? m.gate_latent : dim;
  binder.set_qkv_shape({m.value_heads, m.key_heads, m.key_dim, m.value_dim});
  DeltaWeights w;
  w.qkv = binder.matrix(WeightSlot::MixerIn, {m.channels(), dim});
  w.conv = binder.convolution(m.taps, m.channels());
  w.conv.silu = true;
  if (m.gate_latent > 0) {
    w.gate_down = binder.matrix(WeightSlot::MixerGateDown, {from, dim});
    w.decay_down = binder.matrix(WeightSlot::DecayDown, {from, dim});
  }
  w.gate = binder.matrix(WeightSlot::MixerGate, {m.values(), from});
  w.decay = binder.matrix(WeightSlot::Decay, {decays, from});
  w.beta = binder.matrix(WeightSlot::Beta, {m.value_heads, dim});
  w.rule = {.key_heads = m.key_heads,
            .value_heads = m.value_heads,
            .key_dim = m.key_dim,
            .value_dim = m.value_dim,
            .tiled = m.tiled,
            .channel_decay = m.channel_decay,
            .beta_scale = m.beta_scale,
            .rate = binder.vector(WeightSlot::DecayRate, m.value_heads),
            .decay_bias = binder.vector(WeightSlot::DecayBias, decays)};
  w.norm = gain_alone(binder, WeightSlot::MixerHeadNorm, m.value_dim);
  w.out = binder.matrix(WeightSlot::MixerOut, {dim, m.values()});
  return w;
}

StateSpaceWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const StateSpace& m) {
  StateSpaceWeights w;
  w.in = binder.matrix(WeightSlot::MixerIn, {m.inner() + m.channels() + m.heads, spec.dim});
  w.conv = binder.convolution(m.taps, m.channels());
  w.conv.silu = true;
  w.scan = {.heads = m.heads,
            .head_dim = m.head_dim,
            .groups = m.groups,
            .state_dim = m.state_dim,
            .rate = binder.vector(WeightSlot::DecayRate, m.heads),
            .step_bias = binder.vector(WeightSlot::DecayBias, m.heads),
            .skip = binder.vector(WeightSlot::ScanSkip, m.heads),
            .least_step = m.least_step,
            .largest_step = m.largest_step};
  if (m.norm != StateSpace::Norm::None) w.norm = gain_alone(binder, WeightSlot::MixerHeadNorm, m.inner());
  w.out = binder.matrix(WeightSlot::MixerOut, {spec.dim, m.inner()});
  return w;
}

ChannelScanWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ChannelScan& m) {
  ChannelScanWeights w;
  w.in = binder.matrix(WeightSlot::MixerIn, {int64_t{2} * m.inner, spec.dim});
  w.conv = binder.convolution(m.taps, m.inner);
  w.conv.silu = true;
  w.parameters = binder.matrix(WeightSlot::ScanParameters, {m.step_rank + int64_t{2} * m.state_dim, m.inner});
  if (m.norms) {
    w.step_norm = gain_alone(binder, WeightSlot::ScanStepNorm, m.step_rank);
    w.b_norm = gain_alone(binder, WeightSlot::ScanBNorm, m.state_dim);
    w.c_norm = gain_alone(binder, WeightSlot::ScanCNorm, m.state_dim);
  }
  w.step = binder.matrix(WeightSlot::ScanStep, {m.inner, m.step_rank});
  w.scan = {.heads = m.inner,
            .head_dim = 1,
            .groups = 1,
            .state_dim = m.state_dim,
            .rate = binder.vector(WeightSlot::DecayRate, int64_t{m.inner} * m.state_dim),
            .skip = binder.vector(WeightSlot::ScanSkip, m.inner)};
  w.out = binder.matrix(WeightSlot::MixerOut, {spec.dim, m.inner});
  return w;
}

Adapter bind_adapter(Binder& binder, const ModelSpec& spec, const Attention& m, int number) {
  if (m.adapter_rank == 0) return {};
  const int64_t rank = m.adapter_rank, read = m.input_dim > 0 ? m.input_dim : spec.dim;
  const auto up = [&](WeightSlot slot, int heads, int width) {
    return binder.matrix(slot, {int64_t{heads} * width, rank}, {}, number);
  };
  return {binder.matrix(WeightSlot::QkvAdapterDown, {3 * rank, read}, {}, number),
          {up(WeightSlot::QueryAdapterUp, m.heads, m.head_dim),
           up(WeightSlot::KeyAdapterUp, m.kv_heads, m.head_dim),
           up(WeightSlot::ValueAdapterUp, m.kv_heads, m.values())}};
}

Adapter bind_adapter(Binder& binder, const ModelSpec& spec, const DenseFfn& f, int number) {
  if (f.adapter_rank == 0) return {};
  const int64_t rank = f.adapter_rank, made = int64_t{f.inner} * (f.gated ? 2 : 1);
  return {binder.matrix(WeightSlot::GateUpAdapterDown, {rank, spec.dim}, {}, number),
          {binder.matrix(WeightSlot::GateUpAdapterUp, {made, rank}, {}, number)}};
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

kernels::RopeTable bind_rope(Binder& binder, const Rope& rope) {
  std::vector<float> rows = rope.inverse_frequency;
  rows.insert(rows.end(), rope.beyond.begin(), rope.beyond.end());
  const auto pairs = static_cast<int64_t>(rope.inverse_frequency.size());
  const TensorView flat = binder.upload(rows);
  return {TensorView::contiguous(flat.data, flat.dtype, {flat.elements() / pairs, pairs}, flat.device),
          rope.limit, rope.magnitude, rope.magnitude_beyond, rope.sections};
}

}  // namespace sluice::models
