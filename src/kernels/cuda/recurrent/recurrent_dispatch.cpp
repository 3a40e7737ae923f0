#include "kernels/cuda/recurrent/recurrent_dispatch.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kMostFilledUp = 512;  // tokens of a step whose shape comes back

bool single_tokens(const StateBatch& batch) {
  for (size_t i = 0; i < batch.from.size(); ++i)
    if (batch.query_begin[i + 1] - batch.query_begin[i] != 1) return false;
  return true;
}

}  // namespace

StatesView RecurrentDispatch::states_of(const TensorView& states, const StateBatch& batch) {
  SLUICE_CHECK(states.dtype == DType::F32 && states.device == Device::Cuda && states.stride[1] == 1);
  if (sent_ != batch.from.data()) {
    std::vector<int32_t> saves;
    for (const StateBatch::Save& save : batch.saves) saves.insert(saves.end(), {save.tokens, save.slot});
    // As many as there can be, so that what is put behind them lies where a recorded step of this shape has it.
    const auto most = static_cast<size_t>(2 * std::min(batch.tokens(), kMostFilledUp));
    saves.resize(std::max(saves.size(), most));
    arrays_ = blank<StatesView>();
    arrays_.sequences = batch.sequences();
    arrays_.query_begin = step_.put(kTokenBuffer, batch.query_begin);
    arrays_.from = step_.put(kTokenBuffer, batch.from);
    arrays_.save_begin = step_.put(kTokenBuffer, batch.save_begin);
    arrays_.saves = step_.put(kTokenBuffer, saves);
    sent_ = batch.from.data();
  }
  StatesView view;
  std::memcpy(&view, &arrays_, sizeof view);  // with what lies between its members
  view.data = static_cast<float*>(states.data);
  view.stride = states.stride[0];
  return view;
}

void RecurrentDispatch::multiply(TensorView out, TensorView a, TensorView b) {
  MultiplyParams p = blank<MultiplyParams>();
  p.out = view_of(out);
  p.a = view_of(a);
  p.b = view_of(b);
  if (p.b.n == 1) p.b.stride_n = 0;
  step_.issue(launch_multiply, p);
}

void RecurrentDispatch::causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                                    const StateBatch& batch) {
  SLUICE_CHECK_LE(conv.taps(), kMostTaps);
  ConvParams p = blank<ConvParams>();
  p.out = view_of(out);
  p.x = view_of(x);
  p.kernel = floats_of(conv.kernel, conv.taps() * conv.channels());
  p.bias = floats_of(conv.bias, conv.channels());
  p.states = states_of(states, batch);
  p.taps = static_cast<int32_t>(conv.taps());
  p.silu = conv.silu ? 1 : 0;
  step_.issue(launch_conv, p);
}

void RecurrentDispatch::delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule,
                                   TensorView states, const StateBatch& batch) {
  SLUICE_CHECK(rule.key_dim <= DeltaRule::kMaxDim && rule.value_dim <= DeltaRule::kMaxDim);
  DeltaParams p = blank<DeltaParams>();
  p.out = view_of(out);
  p.qkv = view_of(input.qkv);
  p.decay = view_of(input.decay);
  p.beta = view_of(input.beta);
  p.rate = floats_of(rule.rate, rule.value_heads);
  p.decay_bias = floats_of(rule.decay_bias, input.decay.dim(1));
  p.states = states_of(states, batch);
  p.key_heads = rule.key_heads;
  p.value_heads = rule.value_heads;
  p.key_dim = rule.key_dim;
  p.value_dim = rule.value_dim;
  p.tiled = rule.tiled ? 1 : 0;
  p.channel_decay = rule.channel_decay ? 1 : 0;
  p.single = single_tokens(batch) ? 1 : 0;
  p.fixed_order = step_.deterministic ? 1 : 0;
  p.beta_scale = rule.beta_scale;
  p.length_eps = rule.length_eps;
  step_.issue(launch_delta, p);
}

void RecurrentDispatch::selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan,
                                       TensorView states, const StateBatch& batch) {
  SLUICE_CHECK_LE(scan.state_dim, SelectiveScan::kMaxStateDim);
  ScanParams p = blank<ScanParams>();
  p.out = view_of(out);
  p.x = view_of(input.x);
  p.b = view_of(input.b);
  p.c = view_of(input.c);
  p.step = view_of(input.step);
  p.rate = floats_of(scan.rate, scan.rate.elements());
  p.step_bias = floats_of(scan.step_bias, scan.heads);
  p.skip = floats_of(scan.skip, scan.heads);
  p.states = states_of(states, batch);
  p.heads = scan.heads;
  p.head_dim = scan.head_dim;
  p.groups = scan.groups;
  p.state_dim = scan.state_dim;
  p.rate_per_state = scan.rate_per_state() ? 1 : 0;
  p.least_step = scan.least_step;
  p.largest_step = scan.largest_step;
  step_.issue(launch_scan, p);
}

}  // namespace sluice::kernels::cuda
