#include "kernels/cuda/recurrent/recurrent_dispatch.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int64_t kMostFilledUp = 512;  // tokens of a step whose shape comes back

// One each: token i is sequence i's.
bool single_tokens(const StateBatch& batch) {
  for (size_t i = 0; i < batch.from.size(); ++i)
    if (batch.query_begin[i + 1] - batch.query_begin[i] != 1) return false;
  return batch.from.empty() || batch.query_begin[0] == 0;
}

// First token of the step and number of tokens of each chunk that the delta rule takes at a time.
std::vector<int32_t> chunks_of(const StateBatch& batch) {
  std::vector<int32_t> chunks;
  for (int sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto index = static_cast<size_t>(sequence);
    const int32_t begin = batch.query_begin[index], end = batch.query_begin[index + 1];
    const std::span<const StateBatch::Save> saves = batch.saves_of(sequence);
    auto save = saves.begin();
    for (int32_t row = begin; row < end; row += chunks.back()) {
      while (save != saves.end() && begin + save->tokens <= row) ++save;
      int32_t last = std::min(end, row + kDeltaChunk);
      if (save != saves.end()) last = std::min(last, begin + save->tokens);
      chunks.insert(chunks.end(), {row, last - row});
    }
  }
  return chunks;
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
    put_chunks(batch);
    sent_ = batch.from.data();
    settled_ = nullptr;
  }
  StatesView view;
  std::memcpy(&view, &arrays_, sizeof view);  // with what lies between its members
  view.data = static_cast<float*>(states.data);
  view.stride = states.stride[0];
  return view;
}

void RecurrentDispatch::put_chunks(const StateBatch& batch) {
  chunks_ = nullptr;
  chunk_count_ = 0;
  if (step_.deterministic || batch.tokens() < int64_t{kDeltaChunkFewest} * batch.sequences()) return;
  std::vector<int32_t> chunks = chunks_of(batch);
  chunk_count_ = static_cast<int32_t>(chunks.size() / 2);
  const auto most = static_cast<size_t>(2 * std::min(batch.tokens(), kMostFilledUp));  // as above
  chunks.resize(std::max(chunks.size(), most));
  chunks_ = step_.put(kTokenBuffer, chunks);
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
  settled_ = nullptr;
  step_.issue(launch_conv, p);
}

DeltaParams RecurrentDispatch::delta_params(const DeltaInput& input, const DeltaRule& rule,
                                            const StateBatch& batch) const {
  SLUICE_CHECK(rule.key_dim <= DeltaRule::kMaxDim && rule.value_dim <= DeltaRule::kMaxDim);
  DeltaParams p = blank<DeltaParams>();
  p.qkv = view_of(input.qkv);
  p.decay = view_of(input.decay);
  p.beta = view_of(input.beta);
  p.rate = floats_of(rule.rate, rule.value_heads);
  p.decay_bias = floats_of(rule.decay_bias, input.decay.dim(1));
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
  return p;
}

void RecurrentDispatch::delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule,
                                   TensorView states, const StateBatch& batch) {
  DeltaParams p = delta_params(input, rule, batch);
  p.out = view_of(out);
  p.states = states_of(states, batch);
  settled_ = nullptr;
  p.chunks = chunks_;
  p.chunk_count = chunk_count_;
  if (delta_chunk_fits(p)) p.scratch = delta_.at_least(static_cast<size_t>(delta_chunk_bytes(p)));
  step_.issue(launch_delta, p);
}

// The kernel reads its states before the kernel in front of it has ended where they are known to be there. Nothing but the
// operations of this class writes states between begin() and the end of a step, so those of a layer are what an earlier step
// left unless this step has written them. And the kernel starts when all blocks of the one in front have started, that one when
// all of the one before have, and so on, back to the launch_delta_step() of another layer in the same step: its blocks let others
// start behind their own wait, when all in front of it had ended. So what was launched before that one is done, the arrays of
// the step among it.
bool RecurrentDispatch::gated_delta(TensorView out, const GatedDeltaInput& input,
                                    const GatedDeltaLayer& layer, TensorView states,
                                    const StateBatch& batch) {
  const int64_t kept = layer.conv.state_elements();
  SLUICE_CHECK_EQ(states.dim(1), kept + layer.rule.state_elements());
  if (batch.sequences() == 0 || !single_tokens(batch)) return false;
  DeltaStepParams p = blank<DeltaStepParams>();
  p.delta = delta_params(input.delta, layer.rule, batch);
  p.delta.out = view_of(out);
  p.delta.states = states_of(states.columns(kept, states.dim(1)), batch);
  p.gate = view_of(input.gate);
  p.conv_states = static_cast<float*>(states.data);
  p.conv_kernel = floats_of(layer.conv.kernel, layer.conv.taps() * layer.conv.channels());
  p.conv_bias = floats_of(layer.conv.bias, layer.conv.channels());
  p.gain = floats_of(layer.gain, layer.rule.value_dim);
  p.norm_eps = layer.norm_eps;
  p.taps = static_cast<int32_t>(layer.conv.taps());
  p.silu = layer.conv.silu ? 1 : 0;
  p.activation = static_cast<int32_t>(layer.gate);
  if (!delta_step_fits(p)) return false;
  p.early = settled_ != nullptr && settled_ != states.data && delta_step_at_once(p) ? 1 : 0;
  settled_ = states.data;
  step_.issue(launch_delta_step, p);
  return true;
}

bool RecurrentDispatch::gated_norm(TensorView out, const GatedNorm& input) {
  GatedNormParams p = blank<GatedNormParams>();
  p.out = view_of(out);
  p.x = view_of(input.x);
  p.gate = view_of(input.gate);
  p.gain = floats_of(input.gain, input.head_dim);
  p.dim = input.head_dim;
  p.eps = input.eps;
  p.heads = static_cast<int32_t>(input.x.dim(1) / input.head_dim);
  p.activation = static_cast<int32_t>(input.activation);
  if (!gated_norm_fits(p)) return false;
  step_.issue(launch_gated_norm, p);
  return true;
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
  settled_ = nullptr;
  step_.issue(launch_scan, p);
}

}  // namespace sluice::kernels::cuda
