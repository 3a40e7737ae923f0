// Mixers that keep one state of a sequence: short convolutions, the gated delta rule and state-space scans. Of a layer's
// state the convolution has the first elements, the scan the rest.
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

// The columns of what a state space's matrix makes.
struct StateSpaceParts {
  TensorView gate_and_x, convolved, steps;
};

StateSpaceParts make_parts(const StateSpace& m, const StateSpaceWeights& w, const LayerContext& c,
                           TensorView x) {
  const TensorView wide = c.scratch.get(Buffer::MixerIn, x.dim(0), w.in.rows);
  c.backend.matmul(wide, x, w.in);
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
  return {wide.columns(0, 2 * m.inner()), wide.columns(m.inner(), m.inner() + m.channels()),
          wide.columns(m.inner() + m.channels(), wide.dim(1))};
}

}  // namespace

std::optional<kernels::DeferredMatmul> run_mixer(const ShortConv& m, const ShortConvWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t n = x.dim(0), width = m.width(c.spec.dim);
  const TensorView wide = c.scratch.get(Buffer::MixerIn, n, 3 * width);
  const TensorView mixed = c.scratch.get(Buffer::Mixed, n, width);
  c.backend.matmul(wide, x, w.in);
  const TensorView kept = wide.columns(2 * width, 3 * width);
  ops.multiply(kept, kept, wide.columns(0, width));
  ops.causal_conv(mixed, kept, w.conv, state_of_conv(c, w.conv), c.states);
  ops.multiply(mixed, mixed, wide.columns(width, 2 * width));
  return kernels::DeferredMatmul{mixed, &w.out};
}

std::optional<kernels::DeferredMatmul> run_mixer(const GatedDelta& m, const DeltaWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t n = x.dim(0), values = m.values(), gates = m.gate_latent > 0 ? m.gate_latent : values;
  const int64_t decays = w.in.rows - m.value_heads - m.channels() - gates;
  // A gate stands before what it multiplies.
  const int64_t made = w.in.rows + (m.gate_latent > 0 ? values : 0);
  const TensorView all = c.scratch.get(Buffer::MixerIn, n, made + values);
  const TensorView both = all.columns(made - values, made + values);
  c.backend.matmul(all.columns(0, w.in.rows), x, w.in);
  const TensorView beta = all.columns(decays, decays + m.value_heads);
  const TensorView mixed = c.scratch.get(Buffer::Mixed, n, m.channels());
  ops.causal_conv(mixed, all.columns(decays + m.value_heads, w.in.rows - gates), w.conv,
                  state_of_conv(c, w.conv), c.states);
  TensorView decay = all.columns(0, decays);
  if (m.gate_latent > 0) {
    decay = c.scratch.get(Buffer::Decay, n, w.decay.rows);
    c.backend.matmul(decay, all.columns(0, decays), w.decay);
    c.backend.matmul(both.columns(0, values), all.columns(w.in.rows - gates, w.in.rows), w.gate);
  }
  ops.delta_rule(both.columns(values, 2 * values), {mixed, decay, beta}, w.rule, state_of_scan(c, w.conv),
                 c.states);
  const TensorView heads = both.columns_as_heads(values, m.value_heads, m.value_dim);
  c.backend.rms_norm(heads, heads, w.norm.gain, m.norm_eps);
  const TensorView out = c.scratch.get(Buffer::Gated, n, values);
  c.backend.gated(out, both, m.gate);
  return kernels::DeferredMatmul{out, &w.out};
}

std::optional<kernels::DeferredMatmul> run_mixer(const StateSpace& m, const StateSpaceWeights& w,
                                                 const LayerContext& c, TensorView, TensorView x) {
  RecurrentOps& ops = *kernels::recurrent_ops(c.backend);
  const int64_t n = x.dim(0), inner = m.inner(), states = int64_t{m.groups} * m.state_dim;
  const StateSpaceParts parts = make_parts(m, w, c, x);
  const TensorView mixed = c.scratch.get(Buffer::Mixed, n, m.channels());
  ops.causal_conv(mixed, parts.convolved, w.conv, state_of_conv(c, w.conv), c.states);
  // What the scan gives takes the place of what was convolved, beside its gate.
  const TensorView y = parts.gate_and_x.columns(inner, 2 * inner);
  ops.selective_scan(y,
                     {mixed.columns(0, inner), mixed.columns(inner, inner + states),
                      mixed.columns(inner + states, inner + 2 * states), parts.steps},
                     w.scan, state_of_scan(c, w.conv), c.states);
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
  c.backend.matmul(wide, x, w.in);
  const TensorView both = c.scratch.get(Buffer::MixerGate, n, 2 * inner);  // gate, y
  const TensorView y = both.columns(inner, 2 * inner);
  c.backend.copy(both.columns(0, inner), wide.columns(inner, 2 * inner));
  ops.causal_conv(y, wide.columns(0, inner), w.conv, state_of_conv(c, w.conv), c.states);
  const TensorView made = c.scratch.get(Buffer::Mixed, n, w.parameters.rows);
  c.backend.matmul(made, y, w.parameters);
  if (c.tensor_group != nullptr) c.tensor_group->add_up(made);
  const TensorView latent = made.columns(0, rank), b = made.columns(rank, rank + m.state_dim),
                   scan_c = made.columns(rank + m.state_dim, made.dim(1));
  if (m.norms) {
    c.backend.rms_norm(latent, latent, w.step_norm.gain, c.spec.norm_eps);
    c.backend.rms_norm(b, b, w.b_norm.gain, c.spec.norm_eps);
    c.backend.rms_norm(scan_c, scan_c, w.c_norm.gain, c.spec.norm_eps);
  }
  const TensorView steps = c.scratch.get(Buffer::Decay, n, inner);
  c.backend.matmul(steps, latent, w.step);
  ops.selective_scan(y, {y, b, scan_c, steps}, w.scan, state_of_scan(c, w.conv), c.states);
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
