// Layers that keep a state on CPUs: convolutions are shared out by tokens and channels, the delta rule and scans by
// sequences and heads. Each thread brings its head's state over the tokens of the step.
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_states.h"

namespace sluice::kernels::cpu {

void CpuBackend::multiply(TensorView out, TensorView a, TensorView b) {
  const bool one_row = b.dim(0) == 1;
  for_rows(a.dim(0), a.dim(1), [&](int64_t i) {
    recurrent_.hadamard(out.at<float>(i), a.at<float>(i), b.at<float>(one_row ? 0 : i), a.dim(1));
  });
}

void CpuBackend::causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                             const StateBatch& batch) {
  constexpr int64_t kChannels = 1024;  // of one piece: a multiple of every vector's width
  const ConvRows rows(x, conv, states, batch);
  const std::vector<int> sequences = sequences_of_tokens(batch);
  const int64_t taps = conv.taps(), channels = conv.channels(),
                pieces = (channels + kChannels - 1) / kChannels;
  for_rows(batch.tokens() * pieces, taps * std::min(channels, kChannels), [&](int64_t i) {
    const int64_t token = i / pieces, begin = i % pieces * kChannels;
    const int sequence = sequences[static_cast<size_t>(token)];
    const int64_t index = token - batch.query_begin[static_cast<size_t>(sequence)];
    std::array<const float*, 16> taken{};
    for (int64_t tap = 0; tap < taps; ++tap)
      taken[static_cast<size_t>(tap)] = rows.row(sequence, index - taps + 1 + tap);
    recurrent_.convolve(out.at<float>(token), taken.data(), conv, begin,
                        std::min(begin + kChannels, channels));
  });
  rows.save();
}

void CpuBackend::delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                            const StateBatch& batch) {
  const int64_t size = int64_t{rule.key_dim} * rule.value_dim, keys = int64_t{rule.key_heads} * rule.key_dim;
  const int64_t decays = rule.channel_decay ? rule.key_dim : 1;
  const int group = rule.value_heads / rule.key_heads;
  for_rows(int64_t{batch.sequences()} * rule.value_heads, size, [&](int64_t i) {
    const auto sequence = static_cast<int>(i / rule.value_heads),
               head = static_cast<int>(i % rule.value_heads);
    const int64_t key_head = rule.tiled ? head % rule.key_heads : head / group;
    const auto run = [&](float* state, int64_t first, int64_t count) {
      const int64_t row = batch.query_begin[static_cast<size_t>(sequence)] + first;
      const float* qkv = input.qkv.at<float>(row);
      recurrent_.delta_run({.tokens = count,
                            .key_dim = rule.key_dim,
                            .value_dim = rule.value_dim,
                            .q = qkv + key_head * rule.key_dim,
                            .k = qkv + keys + key_head * rule.key_dim,
                            .v = qkv + 2 * keys + int64_t{head} * rule.value_dim,
                            .qkv_stride = input.qkv.stride[0],
                            .decay = input.decay.at<float>(row) + head * decays,
                            .decay_stride = input.decay.stride[0],
                            .decay_bias = rule.decay_bias.at<float>() + head * decays,
                            .channel_decay = rule.channel_decay,
                            .rate = rule.rate.at<float>()[head],
                            .length_eps = rule.length_eps,
                            .beta = input.beta.at<float>(row) + head,
                            .beta_stride = input.beta.stride[0],
                            .beta_scale = rule.beta_scale,
                            .out = out.at<float>(row) + int64_t{head} * rule.value_dim,
                            .out_stride = out.stride[0],
                            .state = state});
    };
    advance_state(states, batch, sequence, {head * size, size}, run);
  });
}

void CpuBackend::selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan,
                                TensorView states, const StateBatch& batch) {
  const int64_t size = int64_t{scan.head_dim} * scan.state_dim;
  const int64_t rates = scan.rate_per_state() ? scan.state_dim : 1;
  for_rows(int64_t{batch.sequences()} * scan.heads, size, [&](int64_t i) {
    const auto sequence = static_cast<int>(i / scan.heads), head = static_cast<int>(i % scan.heads);
    const int64_t group = int64_t{head} / (scan.heads / scan.groups) * scan.state_dim;
    const auto run = [&](float* state, int64_t first, int64_t count) {
      const int64_t row = batch.query_begin[static_cast<size_t>(sequence)] + first;
      recurrent_.scan_run({.tokens = count,
                           .head_dim = scan.head_dim,
                           .state_dim = scan.state_dim,
                           .x = input.x.at<float>(row) + int64_t{head} * scan.head_dim,
                           .x_stride = input.x.stride[0],
                           .b = input.b.at<float>(row) + group,
                           .c = input.c.at<float>(row) + group,
                           .b_stride = input.b.stride[0],
                           .c_stride = input.c.stride[0],
                           .step = input.step.at<float>(row) + head,
                           .step_stride = input.step.stride[0],
                           .step_bias = scan.step_bias.empty() ? 0.0f : scan.step_bias.at<float>()[head],
                           .rate = scan.rate.at<float>() + head * rates,
                           .rate_per_state = scan.rate_per_state(),
                           .skip = scan.skip.at<float>()[head],
                           .least_step = scan.least_step,
                           .largest_step = scan.largest_step,
                           .out = out.at<float>(row) + int64_t{head} * scan.head_dim,
                           .out_stride = out.stride[0],
                           .state = state});
    };
    advance_state(states, batch, sequence, {head * size, size}, run);
  });
}

}  // namespace sluice::kernels::cpu
