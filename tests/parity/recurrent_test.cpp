// Operations of layers that keep a state: every level against the reference, and the same bits however the tokens of a
// sequence are cut into steps.
#include "kernels/recurrent.h"

#include <functional>

#include "kernels/ref/ref.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Backend;
using kernels::RecurrentOps;
using kernels::StateBatch;

constexpr int64_t kTokens = 83;
constexpr int64_t kSlots = 4;

// Runs some of the tokens [begin, end) of one sequence: operation(ops, out, begin, end, states, batch).
using Operation =
    std::function<void(RecurrentOps&, TensorView, int64_t, int64_t, TensorView, const StateBatch&)>;

// One sequence of kTokens in steps that end at `cuts`, with a state of `elements`; gives its outputs [kTokens, width].
struct Outcome {
  HostTensor out, states;
};
Outcome run_in_steps(Backend& backend, const Operation& operation, const std::vector<int32_t>& cuts,
                     int64_t width, int64_t elements) {
  Outcome outcome{HostTensor::make(DType::F32, {kTokens, width}),
                  HostTensor::make(DType::F32, {kSlots, elements})};
  int32_t begin = 0, slot = -1;
  for (const int32_t end : cuts) {
    const std::vector<int32_t> query_begin{0, end - begin}, from{slot};
    // The middle of a step is saved where the step began; its end in the next slot.
    const int32_t next = (slot + 1) % static_cast<int32_t>(kSlots);
    std::vector<StateBatch::Save> saves;
    if (end - begin > 1 && slot >= 0) saves.push_back({(end - begin) / 2, slot});
    saves.push_back({end - begin, next});
    const std::vector<int32_t> save_begin{0, static_cast<int32_t>(saves.size())};
    operation(*kernels::recurrent_ops(backend), outcome.out.view.rows(begin, end), begin, end,
              outcome.states.view, {query_begin, from, save_begin, saves});
    begin = end;
    slot = next;
  }
  return outcome;
}

void compare_levels(const Operation& operation, int64_t width, int64_t elements) {
  const std::vector<int32_t> whole{kTokens}, pieces{2, 3, 8, 9, 27, kTokens};
  const auto reference = kernels::make_ref_backend();
  const Outcome expected = run_in_steps(*reference, operation, whole, width, elements);
  const Outcome cut = run_in_steps(*reference, operation, pieces, width, elements);
  ASSERT_TRUE(same_bits(cut.out.view, expected.out.view));
  for (const auto& backend : cpu_backends(2)) {
    SCOPED_TRACE(backend->name());
    const Outcome once = run_in_steps(*backend, operation, whole, width, elements);
    ASSERT_TRUE(near(once.out.view, expected.out.view, 2e-5f));
    ASSERT_TRUE(near(once.states.view.rows(0, 1), expected.states.view.rows(0, 1), 2e-5f));
    ASSERT_TRUE(
        same_bits(run_in_steps(*backend, operation, pieces, width, elements).out.view, once.out.view));
  }
}

TEST(Recurrent, Convolutions) {
  for (const int64_t taps : {2, 3, 4})
    for (const int64_t channels : {5, 48, 1100}) {
      Random random(3);
      const HostTensor x = random.tensor({kTokens, channels}), kernel = random.tensor({taps, channels}),
                       bias = random.tensor({channels});
      for (const bool plain : {false, true}) {
        const kernels::CausalConv conv{kernel.view, plain ? TensorView() : bias.view, !plain};
        compare_levels(
            [&](RecurrentOps& ops, TensorView out, int64_t begin, int64_t end, TensorView states,
                const StateBatch& batch) {
              ops.causal_conv(out, x.view.rows(begin, end), conv, states, batch);
            },
            channels, conv.state_elements());
      }
    }
}

TEST(Recurrent, DeltaRule) {
  for (const auto& [key_dim, value_dim] : {std::pair{8, 12}, std::pair{20, 70}, std::pair{128, 128}})
    for (const bool channel_decay : {false, true}) {
      Random random(5);
      kernels::DeltaRule rule{.key_heads = 2, .value_heads = 4, .key_dim = key_dim, .value_dim = value_dim};
      rule.channel_decay = channel_decay;
      rule.tiled = key_dim == 20;
      rule.beta_scale = key_dim == 8 ? 2.0f : 1.0f;
      const int64_t decays = channel_decay ? 4 * key_dim : 4, width = 4 * value_dim;
      const HostTensor qkv = random.tensor({kTokens, 4 * key_dim + width}),
                       decay = random.tensor({kTokens, decays}), beta = random.tensor({kTokens, 4}),
                       bias = random.tensor({decays});
      HostTensor rate = random.tensor({4});
      for (int i = 0; i < 4; ++i) rate.view.at<float>()[i] = -0.1f * static_cast<float>(i + 1);
      rule.rate = rate.view;
      rule.decay_bias = bias.view;
      compare_levels(
          [&](RecurrentOps& ops, TensorView out, int64_t begin, int64_t end, TensorView states,
              const StateBatch& batch) {
            ops.delta_rule(
                out, {qkv.view.rows(begin, end), decay.view.rows(begin, end), beta.view.rows(begin, end)},
                rule, states, batch);
          },
          width, rule.state_elements());
    }
}

TEST(Recurrent, SelectiveScan) {
  for (const auto& [head_dim, state_dim] : {std::pair{8, 12}, std::pair{64, 128}, std::pair{1, 16}}) {
    Random random(7);
    kernels::SelectiveScan scan{.heads = 6, .head_dim = head_dim, .groups = head_dim == 1 ? 1 : 2};
    scan.state_dim = state_dim;
    const HostTensor x = random.tensor({kTokens, 6 * head_dim}),
                     b = random.tensor({kTokens, scan.groups * state_dim}),
                     c = random.tensor({kTokens, scan.groups * state_dim}),
                     step = random.tensor({kTokens, 6}), bias = random.tensor({6}), skip = random.tensor({6});
    HostTensor rate = random.tensor({6, head_dim == 1 ? state_dim : 1});
    for (int64_t i = 0; i < rate.view.elements(); ++i)
      rate.view.at<float>()[i] = -0.05f - std::abs(rate.view.at<float>()[i]);
    scan.rate = rate.view;
    scan.step_bias = bias.view;
    scan.skip = skip.view;
    compare_levels(
        [&](RecurrentOps& ops, TensorView out, int64_t begin, int64_t end, TensorView states,
            const StateBatch& batch) {
          ops.selective_scan(out,
                             {x.view.rows(begin, end), b.view.rows(begin, end), c.view.rows(begin, end),
                              step.view.rows(begin, end)},
                             scan, states, batch);
        },
        6 * head_dim, scan.state_elements());
  }
}

}  // namespace
}  // namespace sluice::parity
