// Layers that keep a state on the device against the reference: whole prompts, prompts cut into steps, states saved in the
// midst of a step, and steps that go on from them.
#include "kernels/recurrent.h"

#include <cstring>
#include <numeric>

#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::RecurrentOps;
using kernels::StateBatch;

constexpr int kSlots = 40;

// Three sequences: a prompt with a save in its midst, a single token that goes on in place, one that goes on elsewhere.
struct Sequences {
  std::vector<int32_t> begin{0, 37, 38, 43}, from{-1, 2, 4}, save_begin{0, 2, 3, 4};
  std::vector<StateBatch::Save> saves{{16, 0}, {37, 1}, {1, 2}, {5, 3}};
  StateBatch batch() const { return {begin, from, save_begin, saves}; }
  static constexpr int64_t kTokens = 43;

  // A token each.
  static Sequences single() {
    return {{0, 1, 2, 3}, {-1, 2, 4}, {0, 2, 3, 4}, {{1, 0}, {1, 1}, {1, 2}, {1, 3}}};
  }
  // The same with prompts whose rows several blocks share, the first of which goes on in place.
  static Sequences longer() {
    return {{0, 301, 302, 304, 451},
            {5, 2, 4, 6},
            {0, 3, 4, 5, 6},
            {{1, 0}, {64, 1}, {301, 5}, {1, 2}, {2, 3}, {147, 6}}};
  }
  // Lengths about that of a chunk of the delta rule, and saves in the midst of chunks.
  static Sequences chunks() {
    return {{0, 1, 64, 128, 193, 322},
            {-1, -1, 2, -1, 5},
            {0, 1, 2, 3, 5, 7},
            {{1, 0}, {63, 1}, {64, 2}, {20, 3}, {65, 4}, {127, 6}, {129, 5}}};
  }
  static Sequences one() { return {{0, 500}, {-1}, {0, 1}, {{500, 0}}}; }
  // Enough of them to fill the device with blocks of many columns.
  static Sequences many(int32_t shortest) {
    Sequences all{{0}, {}, {0}, {}};
    for (int32_t i = 0; i < kSlots; ++i) {
      all.begin.push_back(all.begin.back() + shortest + i);
      all.from.push_back(-1);
      all.saves.push_back({shortest + i, i});
      all.save_begin.push_back(static_cast<int32_t>(all.saves.size()));
    }
    return all;
  }
};

class RecurrentTest : public EachActivation {
 protected:
  RecurrentOps& on_device() { return dynamic_cast<RecurrentOps&>(gpu()); }
  RecurrentOps& on_host() { return dynamic_cast<RecurrentOps&>(ref()); }

  Both states(int64_t elements) {
    Both both{HostTensor::make(DType::F32, {kSlots, elements}), {}, {}, {}};
    both.host = both.host_memory.view;
    for (int64_t i = 0; i < kSlots * elements; ++i) both.host.at<float>()[i] = 0.1f * normal();
    both.device_memory = gpu().upload(both.host);
    both.device = both.device_memory.view;
    return both;
  }
  Both matrix(int64_t rows, int64_t cols, float scale) {
    Both both = vector(rows * cols, scale);
    both.host = TensorView::contiguous(both.host.data, DType::F32, {rows, cols});
    both.device = TensorView::contiguous(both.device.data, DType::F32, {rows, cols}, both.device.device);
    return both;
  }
  // Rates are negative.
  Both rates(int64_t count) {
    Both both{HostTensor::make(DType::F32, {count}), {}, {}, {}};
    both.host = both.host_memory.view;
    for (int64_t i = 0; i < count; ++i) both.host.at<float>()[i] = -0.2f - std::abs(normal());
    both.device_memory = gpu().upload(both.host);
    both.device = both.device_memory.view;
    return both;
  }
  void begin(const StateBatch& batch) {
    positions_.resize(static_cast<size_t>(batch.tokens()));
    std::iota(positions_.begin(), positions_.end(), 0);
    gpu().begin({batch.query_begin, positions_, {}, {}});
  }
  void compare(const Both& out, const Both& states) {
    EXPECT_LT(error(out.host, out.device), tolerance());
    EXPECT_LT(error(states.host, states.device), 5e-5) << "states are f32 whatever the activations are";
  }

 private:
  std::vector<int32_t> positions_;
};

TEST_P(RecurrentTest, Multiplies) {
  const Both a = random(5, 200), b = random(5, 200), row = random(1, 200);
  Both out = zeros(5, 200);
  begin(Sequences().batch());
  on_host().multiply(out.host, a.host, b.host);
  on_device().multiply(out.device, a.device, b.device);
  EXPECT_LT(error(out.host, out.device), tolerance());
  on_host().multiply(out.host, a.host, row.host);
  on_device().multiply(out.device, a.device, row.device);
  EXPECT_LT(error(out.host, out.device), tolerance());
  const Both gains = vector(200);  // f32, whatever activations are
  const auto as_row = [](const TensorView& flat) {
    return TensorView::contiguous(flat.data, DType::F32, {1, 200}, flat.device);
  };
  on_host().multiply(out.host, a.host, as_row(gains.host));
  on_device().multiply(out.device, a.device, as_row(gains.device));
  EXPECT_LT(error(out.host, out.device), tolerance());
}

TEST_P(RecurrentTest, Convolves) {
  const Sequences sequences;
  for (const int taps : {2, 3, 4, 7}) {
    const int64_t channels = 300;
    const Both x = random(Sequences::kTokens, channels), kernel = matrix(taps, channels, 0.5f),
               bias = vector(channels);
    Both out = zeros(Sequences::kTokens, channels);
    const Both kept = states((taps - 1) * channels);
    begin(sequences.batch());
    on_host().causal_conv(out.host, x.host, {kernel.host, taps == 4 ? bias.host : TensorView{}, taps != 3},
                          kept.host, sequences.batch());
    on_device().causal_conv(out.device, x.device,
                            {kernel.device, taps == 4 ? bias.device : TensorView{}, taps != 3}, kept.device,
                            sequences.batch());
    compare(out, kept);
  }
}

TEST_P(RecurrentTest, ConvolvesLongSteps) {
  const Sequences sequences = Sequences::longer();
  for (const int taps : {3, 4, 7}) {
    const int64_t channels = taps == 3 ? 201 : 200, n = sequences.batch().tokens();
    const Both x = random(n, channels), kernel = matrix(taps, channels, 0.5f);
    Both out = zeros(n, channels);
    const Both kept = states((taps - 1) * channels);
    begin(sequences.batch());
    on_host().causal_conv(out.host, x.host, {kernel.host, {}, true}, kept.host, sequences.batch());
    on_device().causal_conv(out.device, x.device, {kernel.device, {}, true}, kept.device, sequences.batch());
    compare(out, kept);
  }
}

struct DeltaCase {
  int key_dim, value_dim;
  bool channel_decay;
};
constexpr DeltaCase kDeltaCases[] = {{128, 128, false}, {24, 40, true},   {200, 64, false}, {40, 37, false},
                                     {300, 33, true},   {128, 256, true}, {64, 132, false}};

TEST_P(RecurrentTest, FollowsTheDeltaRule) {
  for (const Sequences& sequences : {Sequences(), Sequences::single()}) {
    for (const auto& [key_dim, value_dim, channel_decay] : kDeltaCases) {
      kernels::DeltaRule rule{.key_heads = 2,
                              .value_heads = 4,
                              .key_dim = key_dim,
                              .value_dim = value_dim,
                              .tiled = key_dim == 24,
                              .channel_decay = channel_decay};
      const int64_t n = sequences.batch().tokens(), decays = channel_decay ? 4 * key_dim : 4;
      const Both qkv = random(n, 4 * key_dim + 4 * value_dim), decay = random(n, decays), beta = random(n, 4),
                 rate = rates(4), bias = vector(decays);
      Both out = zeros(n, 4 * value_dim);
      const Both kept = states(rule.state_elements());
      begin(sequences.batch());
      rule.rate = rate.host, rule.decay_bias = bias.host;
      on_host().delta_rule(out.host, {qkv.host, decay.host, beta.host}, rule, kept.host, sequences.batch());
      rule.rate = rate.device, rule.decay_bias = bias.device;
      on_device().delta_rule(out.device, {qkv.device, decay.device, beta.device}, rule, kept.device,
                             sequences.batch());
      compare(out, kept);
    }
  }
}

struct LongDeltaCase {
  Sequences sequences;
  int key_heads, value_heads, key_dim, value_dim;
  bool tiled;
};

// Chunks on tensor cores: the state is rounded to bf16 for its products.
TEST_P(RecurrentTest, FollowsTheDeltaRuleInLongSteps) {
  const LongDeltaCase cases[] = {
      {Sequences::longer(), 2, 4, 128, 128, false}, {Sequences::longer(), 2, 4, 96, 192, true},
      {Sequences::longer(), 2, 4, 40, 64, false},   {Sequences::chunks(), 2, 2, 64, 128, false},
      {Sequences::chunks(), 2, 4, 128, 64, true},   {Sequences::one(), 1, 2, 128, 128, false},
      {Sequences::one(), 2, 2, 64, 256, false},     {Sequences::many(60), 2, 4, 128, 128, false},
      {Sequences::many(33), 1, 4, 64, 128, false},  {Sequences::chunks(), 1, 3, 72, 320, false},
  };
  for (const auto& [sequences, key_heads, value_heads, key_dim, value_dim, tiled] : cases) {
    SCOPED_TRACE(::testing::Message() << sequences.from.size() << " sequences, keys " << key_heads << " x "
                                      << key_dim << ", values " << value_heads << " x " << value_dim);
    const int64_t n = sequences.batch().tokens();
    kernels::DeltaRule rule{.key_heads = key_heads,
                            .value_heads = value_heads,
                            .key_dim = key_dim,
                            .value_dim = value_dim,
                            .tiled = tiled};
    const Both qkv = random(n, 2 * key_heads * key_dim + value_heads * value_dim),
               decay = random(n, value_heads), beta = random(n, value_heads), rate = rates(value_heads),
               bias = vector(value_heads);
    Both out = zeros(n, value_heads * value_dim);
    const Both kept = states(rule.state_elements());
    begin(sequences.batch());
    rule.rate = rate.host, rule.decay_bias = bias.host;
    on_host().delta_rule(out.host, {qkv.host, decay.host, beta.host}, rule, kept.host, sequences.batch());
    rule.rate = rate.device, rule.decay_bias = bias.device;
    on_device().delta_rule(out.device, {qkv.device, decay.device, beta.device}, rule, kept.device,
                           sequences.batch());
    EXPECT_LT(error(out.host, out.device), tolerance());
    EXPECT_LT(error(kept.host, kept.device), activations_ == DType::F32 ? 5e-5 : kTolerance);
  }
}

// A kernel for single tokens has the bits of the one for long steps.
TEST_P(RecurrentTest, TheDeltaRuleHasTheSameBitsTokenByToken) {
  constexpr int kTokens = 5;  // too few for chunks
  for (const auto& [key_dim, value_dim, channel_decay] : kDeltaCases) {
    const int64_t decays = channel_decay ? 4 * key_dim : 4;
    kernels::DeltaRule rule{.key_heads = 2,
                            .value_heads = 4,
                            .key_dim = key_dim,
                            .value_dim = value_dim,
                            .channel_decay = channel_decay};
    const Both qkv = random(kTokens, 4 * key_dim + 4 * value_dim), decay = random(kTokens, decays),
               beta = random(kTokens, 4), rate = rates(4), kept = states(rule.state_elements());
    Both together = zeros(kTokens, 4 * value_dim), apart = zeros(kTokens, 4 * value_dim);
    rule.rate = rate.device;
    const auto run = [&](const Both& out, int from, int count, int slot) {
      const std::vector<int32_t> query_begin{0, count}, start{slot}, save_begin{0, 1};
      const std::vector<StateBatch::Save> saves{{count, slot}};
      const StateBatch batch{query_begin, start, save_begin, saves};
      begin(batch);
      on_device().delta_rule(out.device.rows(from, from + count),
                             {qkv.device.rows(from, from + count), decay.device.rows(from, from + count),
                              beta.device.rows(from, from + count)},
                             rule, kept.device, batch);
      gpu().synchronize();
    };
    HostTensor states_here = HostTensor::make(DType::F32, {kSlots, rule.state_elements()});
    gpu().copy(kept.device.rows(3, 4), kept.device.rows(2, 3));
    run(together, 0, kTokens, 2);
    for (int token = 0; token < kTokens; ++token) run(apart, token, 1, 3);
    gpu().download(states_here.view, kept.device);
    gpu().download(together.host, together.device);
    gpu().download(apart.host, apart.device);
    const auto elements = static_cast<size_t>(rule.state_elements());
    EXPECT_EQ(std::memcmp(states_here.view.at<float>(2), states_here.view.at<float>(3), elements * 4), 0)
        << key_dim << " x " << value_dim;
    EXPECT_EQ(
        std::memcmp(together.host.data, apart.host.data, static_cast<size_t>(together.host.elements()) * 4),
        0)
        << key_dim << " x " << value_dim;
  }
}

// Behind a token a state is saved once or, of single(), twice.
TEST_P(RecurrentTest, Scans) {
  const std::tuple<int, int, int, int> shapes[] = {{6, 20, 2, 128}, {50, 1, 1, 16}, {2, 64, 1, 200}};
  for (const auto& [sequences, shape] :
       {std::pair{Sequences(), shapes[0]}, std::pair{Sequences(), shapes[1]},
        std::pair{Sequences(), shapes[2]}, std::pair{Sequences::single(), shapes[0]}}) {
    const auto& [heads, head_dim, groups, state_dim] = shape;
    kernels::SelectiveScan scan{
        .heads = heads, .head_dim = head_dim, .groups = groups, .state_dim = state_dim};
    const int64_t n = sequences.batch().tokens();
    const Both x = random(n, heads * head_dim), b = random(n, groups * state_dim),
               c = random(n, groups * state_dim), step = random(n, heads),
               rate = rates(head_dim == 1 ? heads * state_dim : heads), bias = vector(heads),
               skip = vector(heads);
    Both out = zeros(n, heads * head_dim);
    const Both kept = states(scan.state_elements());
    begin(sequences.batch());
    scan.rate = rate.host, scan.step_bias = bias.host, scan.skip = skip.host;
    on_host().selective_scan(out.host, {x.host, b.host, c.host, step.host}, scan, kept.host,
                             sequences.batch());
    scan.rate = rate.device, scan.step_bias = bias.device, scan.skip = skip.device;
    on_device().selective_scan(out.device, {x.device, b.device, c.device, step.device}, scan, kept.device,
                               sequences.batch());
    compare(out, kept);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RecurrentTest, kEachActivation, [](const auto& one) { return name_of(one); });

}  // namespace
}  // namespace sluice::cuda_test
