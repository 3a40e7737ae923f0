// Weights of mixers that keep a state, and a rank's share of them.
#include <algorithm>

#include "models/loading/bind_parts.h"

namespace sluice::models {

namespace {

Norm gain_of(Binder& binder, WeightSlot slot, int64_t width, const Cut& kept = {}) {
  return {binder.vector(slot, width, kept), {}};
}

std::vector<Range> scaled(std::vector<Range> ranges, int64_t factor, int64_t offset = 0) {
  for (Range& range : ranges) range = models::scaled(range, factor, offset);
  return ranges;
}

// The value heads of the rank's key heads, or where several ranks keep a key head, the rank's part of them. Neighbours share a
// key head, or each tile has one for every key head.
std::vector<Range> value_heads_of(const GatedDelta& m, const Share& share) {
  const Range keys = shared_of(m.key_heads, share);
  const int64_t shared = m.value_heads / m.key_heads;
  const int copies = std::max(1, share.size / m.key_heads);
  const Range own = Share{share.index % copies, copies}.of(shared);
  if (!m.tiled) return {{keys.begin * shared + own.begin, (keys.end - 1) * shared + own.end}};
  std::vector<Range> heads;
  for (int64_t tile = own.begin; tile < own.end; ++tile)
    heads.push_back(models::scaled(keys, 1, tile * m.key_heads));
  return heads;
}

// Rows of what is convolved: queries, keys, values.
std::vector<Range> channels_of(const GatedDelta& m, Range keys, const std::vector<Range>& values) {
  std::vector<Range> rows{models::scaled(keys, m.key_dim), models::scaled(keys, m.key_dim, m.keys())};
  for (const Range& range : scaled(values, m.value_dim, 2 * m.keys())) rows.push_back(range);
  return rows;
}

}  // namespace

ShortConvWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ShortConv& m,
                                const Cutter& cutter) {
  const int64_t dim = spec.dim;
  const Range channels = cutter.share.of(dim);
  return {.in = binder.matrix(WeightSlot::MixerIn, {3 * dim, dim}, cutter.stacked_rows(dim, 3)),
          .conv = binder.convolution(m.taps, dim, cutter.rows({channels})),
          .out = binder.matrix(WeightSlot::MixerOut, {dim, dim}, cutter.cols({channels}))};
}

DeltaWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const GatedDelta& m,
                            const Cutter& cutter) {
  const int64_t dim = spec.dim, each = m.channel_decay ? m.key_dim : 1, decays = m.value_heads * each;
  const Range keys = shared_of(m.key_heads, cutter.share);
  const std::vector<Range> heads = value_heads_of(m, cutter.share), values = scaled(heads, m.value_dim);
  const Cut channels = cutter.rows(channels_of(m, keys, heads)),
            decay_rows = cutter.rows(scaled(heads, each));
  binder.set_qkv_shape({m.value_heads, m.key_heads, m.key_dim, m.value_dim});
  DeltaWeights w;
  const SlotRows betas{WeightSlot::Beta, m.value_heads, cutter.rows(heads).rows},
      convolved{WeightSlot::MixerIn, m.channels(), channels.rows};
  if (m.gate_latent > 0) {
    w.in = binder.joined({{WeightSlot::DecayDown, m.gate_latent, {}},
                          betas,
                          convolved,
                          {WeightSlot::MixerGateDown, m.gate_latent, {}}},
                         dim);
    w.gate = binder.matrix(WeightSlot::MixerGate, {m.values(), m.gate_latent}, cutter.rows(values));
    w.decay = binder.matrix(WeightSlot::Decay, {decays, m.gate_latent}, decay_rows);
  } else {
    w.in = binder.joined({{WeightSlot::Decay, decays, decay_rows.rows},
                          betas,
                          convolved,
                          {WeightSlot::MixerGate, m.values(), cutter.rows(values).rows}},
                         dim);
  }
  w.conv = binder.convolution(m.taps, m.channels(), channels);
  w.conv.silu = true;
  w.rule = {.key_heads = static_cast<int>(keys.size()),
            .value_heads = m.value_heads / cutter.share.size,
            .key_dim = m.key_dim,
            .value_dim = m.value_dim,
            .tiled = m.tiled,
            .channel_decay = m.channel_decay,
            .beta_scale = m.beta_scale,
            .rate = binder.vector(WeightSlot::DecayRate, m.value_heads, cutter.rows(heads)),
            .decay_bias = binder.vector(WeightSlot::DecayBias, decays, decay_rows)};
  w.norm = gain_of(binder, WeightSlot::MixerHeadNorm, m.value_dim);
  w.out = binder.matrix(WeightSlot::MixerOut, {dim, m.values()}, cutter.cols(values));
  return w;
}

StateSpaceWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const StateSpace& m,
                                 const Cutter& cutter) {
  const int64_t inner = m.inner(), states = int64_t{m.groups} * m.state_dim;
  const Range heads = cutter.share.of(m.heads), groups = shared_of(m.groups, cutter.share);
  const Range gates = scaled(heads, m.head_dim);
  // Rows of what is convolved: x, b, c.
  const auto channels = [&](int64_t offset) {
    return std::vector<Range>{scaled(heads, m.head_dim, offset), scaled(groups, m.state_dim, offset + inner),
                              scaled(groups, m.state_dim, offset + inner + states)};
  };
  std::vector<Range> rows = channels(inner);
  rows.insert(rows.begin(), gates);
  rows.push_back(scaled(heads, 1, inner + m.channels()));
  const Cut own = cutter.rows({heads});
  StateSpaceWeights w;
  w.in = binder.matrix(WeightSlot::MixerIn, {inner + m.channels() + m.heads, spec.dim},
                       cutter.rows(std::move(rows)));
  w.conv = binder.convolution(m.taps, m.channels(), cutter.rows(channels(0)));
  w.conv.silu = true;
  w.scan = {.heads = static_cast<int>(heads.size()),
            .head_dim = m.head_dim,
            .groups = static_cast<int>(groups.size()),
            .state_dim = m.state_dim,
            .rate = binder.vector(WeightSlot::DecayRate, m.heads, own),
            .step_bias = binder.vector(WeightSlot::DecayBias, m.heads, own),
            .skip = binder.vector(WeightSlot::ScanSkip, m.heads, own),
            .least_step = m.least_step,
            .largest_step = m.largest_step};
  if (m.norm != StateSpace::Norm::None)
    w.norm = gain_of(binder, WeightSlot::MixerHeadNorm, inner, cutter.rows({gates}));
  w.out = binder.matrix(WeightSlot::MixerOut, {spec.dim, inner}, cutter.cols({gates}));
  return w;
}

ChannelScanWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ChannelScan& m,
                                  const Cutter& cutter) {
  const Range channels = cutter.share.of(m.inner);
  const Cut own = cutter.rows({channels});
  ChannelScanWeights w;
  w.in =
      binder.matrix(WeightSlot::MixerIn, {int64_t{2} * m.inner, spec.dim}, cutter.stacked_rows(m.inner, 2));
  w.conv = binder.convolution(m.taps, m.inner, own);
  w.conv.silu = true;
  w.parameters = binder.matrix(WeightSlot::ScanParameters, {m.step_rank + int64_t{2} * m.state_dim, m.inner},
                               cutter.cols({channels}));
  if (m.norms) {
    w.step_norm = gain_of(binder, WeightSlot::ScanStepNorm, m.step_rank);
    w.b_norm = gain_of(binder, WeightSlot::ScanBNorm, m.state_dim);
    w.c_norm = gain_of(binder, WeightSlot::ScanCNorm, m.state_dim);
  }
  w.step = binder.matrix(WeightSlot::ScanStep, {m.inner, m.step_rank}, own);
  w.scan = {.heads = static_cast<int>(channels.size()),
            .head_dim = 1,
            .groups = 1,
            .state_dim = m.state_dim,
            .rate = binder.vector(WeightSlot::DecayRate, int64_t{m.inner} * m.state_dim,
                                  cutter.rows({scaled(channels, m.state_dim)})),
            .skip = binder.vector(WeightSlot::ScanSkip, m.inner, own)};
  w.out = binder.matrix(WeightSlot::MixerOut, {spec.dim, m.inner}, cutter.cols({channels}));
  return w;
}

}  // namespace sluice::models
