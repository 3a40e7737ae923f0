// The reference of layers that keep a state: one token after the other, sums in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/host_states.h"
#include "kernels/ref/ref_backend.h"

namespace sluice::kernels {

namespace {

double softplus_of(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

double logistic(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

float value_or_zero(const TensorView& vector, int64_t i) {
  return vector.empty() ? 0.0f : vector.at<float>()[i];
}

// x divided by its length, times factor.
std::vector<double> unit(const float* x, int size, double eps, double factor) {
  double square = 0.0;
  for (int i = 0; i < size; ++i) square += double{x[i]} * x[i];
  std::vector<double> out(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) out[static_cast<size_t>(i)] = x[i] / std::sqrt(square + eps) * factor;
  return out;
}

// One token of one head.
struct DeltaToken {
  std::vector<double> q, k, decay;
  const float* v;
  double beta;
};

void step_delta(float* out, float* state, const DeltaRule& rule, const DeltaToken& token) {
  for (int j = 0; j < rule.value_dim; ++j) {
    const auto cell = [&](int i) -> float& { return state[int64_t{i} * rule.value_dim + j]; };
    double known = 0.0, sum = 0.0;
    for (int i = 0; i < rule.key_dim; ++i) {
      const auto index = static_cast<size_t>(i);
      cell(i) = static_cast<float>(cell(i) * token.decay[index]);
      known += cell(i) * token.k[index];
    }
    const double delta = (token.v[j] - known) * token.beta;
    for (int i = 0; i < rule.key_dim; ++i) {
      const auto index = static_cast<size_t>(i);
      cell(i) = static_cast<float>(cell(i) + token.k[index] * delta);
      sum += cell(i) * token.q[index];
    }
    out[j] = static_cast<float>(sum);
  }
}

DeltaToken delta_token(const DeltaInput& input, const DeltaRule& rule, int head, int64_t row) {
  const int group = rule.value_heads / rule.key_heads;
  const int key_head = rule.tiled ? head % rule.key_heads : head / group;
  const float* qkv = input.qkv.at<float>(row);
  const int64_t keys = int64_t{rule.key_heads} * rule.key_dim;
  DeltaToken token{
      .q = unit(qkv + int64_t{key_head} * rule.key_dim, rule.key_dim, rule.length_eps,
                1.0 / std::sqrt(rule.key_dim)),
      .k = unit(qkv + keys + int64_t{key_head} * rule.key_dim, rule.key_dim, rule.length_eps, 1.0),
      .decay = std::vector<double>(static_cast<size_t>(rule.key_dim)),
      .v = qkv + 2 * keys + int64_t{head} * rule.value_dim,
      .beta = rule.beta_scale * logistic(input.beta.at<float>(row)[head])};
  for (int i = 0; i < rule.key_dim; ++i) {
    const int64_t place = rule.channel_decay ? int64_t{head} * rule.key_dim + i : head;
    const double gate = input.decay.at<float>(row)[place] + value_or_zero(rule.decay_bias, place);
    token.decay[static_cast<size_t>(i)] = std::exp(rule.rate.at<float>()[head] * softplus_of(gate));
  }
  return token;
}

void step_scan(float* out, float* state, const ScanInput& input, const SelectiveScan& scan, int64_t row,
               int head) {
  const int64_t group = int64_t{head} / (scan.heads / scan.groups) * scan.state_dim;
  const float *b = input.b.at<float>(row) + group, *c = input.c.at<float>(row) + group;
  const double step =
      std::clamp<double>(softplus_of(input.step.at<float>(row)[head] + value_or_zero(scan.step_bias, head)),
                         scan.least_step, scan.largest_step);
  const float* rate = scan.rate.at<float>() + int64_t{head} * (scan.rate_per_state() ? scan.state_dim : 1);
  for (int p = 0; p < scan.head_dim; ++p, state += scan.state_dim) {
    const double x = input.x.at<float>(row)[int64_t{head} * scan.head_dim + p];
    double sum = scan.skip.at<float>()[head] * x;
    for (int s = 0; s < scan.state_dim; ++s) {
      const double kept = std::exp(step * rate[scan.rate_per_state() ? s : 0]);
      state[s] = static_cast<float>(kept * state[s] + step * x * b[s]);
      sum += double{state[s]} * c[s];
    }
    out[p] = static_cast<float>(sum);
  }
}

}  // namespace

void RefBackend::multiply(TensorView out, TensorView a, TensorView b) {
  for (int64_t row = 0; row < a.dim(0); ++row) {
    const float *left = a.at<float>(row), *right = b.at<float>(b.dim(0) == 1 ? 0 : row);
    for (int64_t i = 0; i < a.dim(1); ++i) out.at<float>(row)[i] = left[i] * right[i];
  }
}

void RefBackend::causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                             const StateBatch& batch) {
  const ConvRows rows(x, conv, states, batch);
  for (int sequence = 0; sequence < batch.sequences(); ++sequence) {
    const int64_t begin = batch.query_begin[static_cast<size_t>(sequence)];
    for (int64_t i = begin; i < batch.query_begin[static_cast<size_t>(sequence) + 1]; ++i) {
      for (int64_t channel = 0; channel < conv.channels(); ++channel) {
        double sum = value_or_zero(conv.bias, channel);
        for (int64_t tap = 0; tap < conv.taps(); ++tap)
          if (const float* from = rows.row(sequence, i - begin - conv.taps() + 1 + tap))
            sum += double{conv.kernel.at<float>(tap)[channel]} * from[channel];
        out.at<float>(i)[channel] = static_cast<float>(conv.silu ? sum * logistic(sum) : sum);
      }
    }
  }
  rows.save();
}

void RefBackend::delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                            const StateBatch& batch) {
  const int64_t size = int64_t{rule.key_dim} * rule.value_dim;
  for (int sequence = 0; sequence < batch.sequences(); ++sequence)
    for (int head = 0; head < rule.value_heads; ++head)
      advance_state(states, batch, sequence, {head * size, size},
                    [&](float* state, int64_t first, int64_t count) {
                      for (int64_t i = first; i < first + count; ++i) {
                        const int64_t row = batch.query_begin[static_cast<size_t>(sequence)] + i;
                        step_delta(out.at<float>(row) + int64_t{head} * rule.value_dim, state, rule,
                                   delta_token(input, rule, head, row));
                      }
                    });
}

void RefBackend::selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan,
                                TensorView states, const StateBatch& batch) {
  const int64_t size = int64_t{scan.head_dim} * scan.state_dim;
  for (int sequence = 0; sequence < batch.sequences(); ++sequence)
    for (int head = 0; head < scan.heads; ++head)
      advance_state(
          states, batch, sequence, {head * size, size}, [&](float* state, int64_t first, int64_t count) {
            for (int64_t i = first; i < first + count; ++i) {
              const int64_t row = batch.query_begin[static_cast<size_t>(sequence)] + i;
              step_scan(out.at<float>(row) + int64_t{head} * scan.head_dim, state, input, scan, row, head);
            }
          });
}

}  // namespace sluice::kernels
