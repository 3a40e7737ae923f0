// Mixers that keep one state of a sequence: short convolutions, the gated delta rule and state-space scans. Of a layer's
// state the convolution has the first elements, the scan the rest.
//
// Where ranks share a step's tokens (context parallel), each makes the products of its own, and all keep the states: what a
// convolution or a scan reads is gathered, and each rank runs it over all tokens of the step.
#include "models/layers/layers.h"
#include "models/layers/split_norm.h"

namespace sluice::models {

namespace {

using kernels::RecurrentOps;

TensorView state_of_conv(const LayerContext& c, const kernels::CausalConv& conv) {
  return c.state.columns(0, conv.state_elements());
}

TensorView state_of_scan(const LayerContext& c, const kernels::CausalConv& conv) {
  return c.state.columns(conv.state_elements(), c.state.dim(1));
}

// Each group of columns by its own root mean square.
void norm_groups(const StateSpace& m, const LayerContext& c, TensorView x, TensorView gain) {
  const float eps = m.norm_eps;
  if (m.norm_ranks > 1) {
    const Share& share = c.tensor_group->placement().tensor;
    const SplitNorm own{
        .x = x, .gain = gain, .row_width = x.dim(1) * m.norm_ranks, .row = share.index / m.norm_ranks};
    return run_split_norms(c, {&own, 1}, share.size / m.norm_ranks, eps);
  }
  const int64_t width = x.dim(1) / m.norm_groups;
  for (int64_t begin = 0; begin < x.dim(1); begin += width) {
    const TensorView part = x.columns(begin, begin + width);
    c.backend.rms_norm(part, part, gain.rows(begin, begin + width), eps);
  }
}

// The columns of what a state space's matrix makes of the rank's own rows; x is both in the first and in the second.
struct StateSpaceParts {
  TensorView gate_and_x, convolved_and_steps;
};

StateSpaceParts make_parts(const StateSpace& m, const StateSpaceWeights& w, const LayerContext& c,
                           TensorView x) {
  const TensorView wide = c.scratch.get(Buffer::MixerIn, x.dim(0), w.in.rows);
  if (x.dim(0) > 0) c.backend.matmul(wide, x, w.in);
  if (m.input_scale != 1.0f) c.backend.scale(wide, m.input_scale);
  if (!m.part_scales.empty()) {
    const int64_t states = int64_t{m.groups} * m.state_dim;
    int64_t begin = 0;
    size_t part = 0;
    for (const int64_t width : {m.inner(), m.inner(), states, states, int64_t{m.heads}}) {
      if (m.part_scales[part] != 1.0f)
        c.backend.scale(wide.columns(begin, begin + width), m.part_scales[part]);
      begin += width;
      ++part;
    }
  }
  return {wide.columns(0, 2 * m.inner()), wide.columns(m.inner(), wide.dim(1))};
}

struct DeltaParts {
  kernels::DeltaInput in;  // of all tokens of the step; qkv before the convolution
  TensorView both;         // of the own: gates, before room for what they multiply
};

DeltaParts make_delta_parts(const GatedDelta& m, const DeltaWeights& w, const LayerContext& c, TensorView x) {
  const int64_t n = x.dim(0), values = m.values(), rows = w.in.rows, heads = m.value_heads;
  const bool latent = m.gate_latent > 0;
  const int64_t gates = latent ? m.gate_latent : values, first = rows - heads - m.channels() - gates;
  const int64_t made = rows + (latent ? values : 0), read = first + heads + m.channels();
  const TensorView wide = c.scratch.get(Buffer::MixerIn, n, made + values);
  const TensorView both = wide.columns(made - values, made + values);
  if (n > 0) c.backend.matmul(wide.columns(0, rows), x, w.in);
  TensorView decay = wide.columns(0, first);
  if (latent) {
    decay = c.scratch.get(Buffer::Decay, n, w.decay.rows);
    if (n > 0) c.backend.matmul(decay, wide.columns(0, first), w.decay);
    if (n > 0) c.backend.matmul(both.columns(0, values), wide.columns(rows - gates, rows), w.gate);
  }
  if (c.shared_context == nullptr)
    return {{wide.columns(first + heads, read), decay, wide.columns(first, first + heads)}, both};
  // Side by side, to be gathered.
  const int64_t decays = decay.dim(1);
  TensorView own = wide.columns(0, read);
  if (latent) {
    own = c.scratch.get(Buffer::Attended, n, decays + read - first);
    c.backend.copy(own.columns(0, decays), decay);
    c.backend.copy(own.columns(decays, own.dim(1)), wide.columns(first, read));
  }
  const TensorView all = c.all_rows(own);
  return {
      {all.columns(decays + heads, all.dim(1)), all.columns(0, decays), all.columns(decays, decays + heads)},
      both};
}

// Memory of the whole step for what a scan makes: `own`, where the rank has all rows.
TensorView scan_memory(const LayerContext& c, TensorView own) {
  if (c.shared_context == nullptr) return own;
  return c.scratch.get(Buffer::Attended, c.step_batch().tokens(), own.dim(1));
}

// own = its rows of what was made of all.
void take_own(const LayerContext& c, TensorView own, TensorView all) {
  if (c.shared_context != nullptr) c.backend.copy(own, c.own_rows(all));
}

}  // namespace

std::optional<kernels::DeferredMatmul> run_mixer(const ShortConv& m, const ShortConvWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t n = x.dim(0), width = m.width(c.spec.dim);
  const TensorView wide = c.scratch.get(Buffer::MixerIn, n, 3 * width);
  if (n > 0) c.backend.matmul(wide, x, w.in);
  const TensorView kept = wide.columns(2 * width, 3 * width);
  ops.multiply(kept, kept, wide.columns(0, width));
  const TensorView all = c.all_rows(kept);
  const TensorView mixed = c.scratch.get(Buffer::Mixed, all.dim(0), width);
  ops.causal_conv(mixed, all, w.conv, state_of_conv(c, w.conv), c.states);
  const TensorView own = c.own_rows(mixed);
  ops.multiply(own, own, wide.columns(width, 2 * width));
  return kernels::DeferredMatmul{own, &w.out};
}

std::optional<kernels::DeferredMatmul> run_mixer(const GatedDelta& m, const DeltaWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t values = m.values();
  const DeltaParts parts = make_delta_parts(m, w, c, x);
  const kernels::DeltaInput& in = parts.in;
  const TensorView both = parts.both, out = c.scratch.get(Buffer::Gated, x.dim(0), values);
  if (c.shared_context == nullptr &&
      ops.gated_delta(out, {in, both.columns(0, values)}, {w.conv, w.rule, w.norm.gain, m.norm_eps, m.gate},
                      c.state, c.states))
    return kernels::DeferredMatmul{out, &w.out};
  const TensorView mixed = c.scratch.get(Buffer::Mixed, in.qkv.dim(0), m.channels());
  ops.causal_conv(mixed, in.qkv, w.conv, state_of_conv(c, w.conv), c.states);
  const TensorView scanned = scan_memory(c, both.columns(values, 2 * values));
  ops.delta_rule(scanned, {mixed, in.decay, in.beta}, w.rule, state_of_scan(c, w.conv), c.states);
  take_own(c, both.columns(values, 2 * values), scanned);
  if (ops.gated_norm(out, {both.columns(values, 2 * values), both.columns(0, values), m.value_dim,
                           w.norm.gain, m.norm_eps, m.gate}))
    return kernels::DeferredMatmul{out, &w.out};
  const TensorView heads = both.columns_as_heads(values, m.value_heads, m.value_dim);
  c.backend.rms_norm(heads, heads, w.norm.gain, m.norm_eps);
  c.backend.gated(out, both, m.gate);
  return kernels::DeferredMatmul{out, &w.out};
}

std::optional<kernels::DeferredMatmul> run_mixer(const StateSpace& m, const StateSpaceWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t n = x.dim(0), inner = m.inner(), states = int64_t{m.groups} * m.state_dim;
  const StateSpaceParts parts = make_parts(m, w, c, x);
  const TensorView all = c.all_rows(parts.convolved_and_steps);
  const TensorView mixed = c.scratch.get(Buffer::Mixed, all.dim(0), m.channels());
  ops.causal_conv(mixed, all.columns(0, m.channels()), w.conv, state_of_conv(c, w.conv), c.states);
  // What the scan gives takes the place of what was convolved, beside its gate.
  const TensorView scanned = all.columns(0, inner), y = parts.gate_and_x.columns(inner, 2 * inner);
  ops.selective_scan(
      scanned,
      {mixed.columns(0, inner), mixed.columns(inner, inner + states),
       mixed.columns(inner + states, inner + 2 * states), all.columns(m.channels(), all.dim(1))},
      w.scan, state_of_scan(c, w.conv), c.states);
  take_own(c, y, scanned);
  if (m.norm == StateSpace::Norm::BeforeGate) norm_groups(m, c, y, w.norm.gain);
  const TensorView out = c.scratch.get(Buffer::Gated, n, inner);
  c.backend.gated(out, parts.gate_and_x, Activation::Silu);
  if (m.norm == StateSpace::Norm::AfterGate) norm_groups(m, c, out, w.norm.gain);
  return kernels::DeferredMatmul{out, &w.out};
}

std::optional<kernels::DeferredMatmul> run_mixer(const ChannelScan& m, const ChannelScanWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t n = x.dim(0), inner = m.inner, rank = m.step_rank;
  const TensorView wide = c.scratch.get(Buffer::MixerIn, n, 2 * inner);  // x, gate
  if (n > 0) c.backend.matmul(wide, x, w.in);
  const TensorView both = c.scratch.get(Buffer::MixerGate, n, 2 * inner);  // gate, y
  const TensorView y = scan_memory(c, both.columns(inner, 2 * inner));
  c.backend.copy(both.columns(0, inner), wide.columns(inner, 2 * inner));
  ops.causal_conv(y, c.all_rows(wide.columns(0, inner)), w.conv, state_of_conv(c, w.conv), c.states);
  const TensorView made = c.scratch.get(Buffer::Mixed, y.dim(0), w.parameters.rows);
  c.backend.matmul(made, y, w.parameters);
  if (c.tensor_group != nullptr) c.tensor_group->add_up(made);
  const TensorView latent = made.columns(0, rank), b = made.columns(rank, rank + m.state_dim),
                   scan_c = made.columns(rank + m.state_dim, made.dim(1));
  if (m.norms) {
    c.backend.rms_norm(latent, latent, w.step_norm.gain, c.spec.norm_eps);
    c.backend.rms_norm(b, b, w.b_norm.gain, c.spec.norm_eps);
    c.backend.rms_norm(scan_c, scan_c, w.c_norm.gain, c.spec.norm_eps);
  }
  const TensorView steps = c.scratch.get(Buffer::Decay, y.dim(0), inner);
  c.backend.matmul(steps, latent, w.step);
  ops.selective_scan(y, {y, b, scan_c, steps}, w.scan, state_of_scan(c, w.conv), c.states);
  take_own(c, both.columns(inner, 2 * inner), y);
  const TensorView out = c.scratch.get(Buffer::Gated, n, inner);
  c.backend.gated(out, both, Activation::Silu);
  return kernels::DeferredMatmul{out, &w.out};
}

std::optional<kernels::DeferredMatmul> run_mixer(const AttentionBesideStateSpace& m, const BesideWeights& w,
                                                 const LayerContext& c, TensorView out, TensorView x) {
  const TensorView scanned = c.scratch.get(Buffer::Extra, x.dim(0), c.spec.dim);
  finish(c.backend, scanned, run_mixer(m.scan, w.scan, c, scanned, x));
  finish(c.backend, out, run_mixer(m.attention, w.attention, c, out, x));
  if (m.attention_scale != 1.0f) c.backend.scale(out, m.attention_scale);
  c.backend.add(out, out, scanned, m.scan_scale);
  return std::nullopt;
}

}  // namespace sluice::models
