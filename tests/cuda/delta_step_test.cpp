// A layer of the gated delta rule in one launch against the operations that it stands for: the same bits of results and of
// states, for several layers of a step, whose kernels overlap, and for steps that go on from what others left.
#include <cstring>
#include <numeric>

#include "kernels/recurrent.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::Activation;
using kernels::RecurrentOps;
using kernels::StateBatch;

struct StepShape {
  int key_heads, value_heads, key_dim, value_dim, taps;
  bool tiled, channel_decay, silu, biased;
  Activation gate;
};
constexpr StepShape kShapes[] = {
    {4, 8, 128, 128, 4, false, false, true, false, Activation::Silu},
    {4, 8, 128, 128, 4, true, false, true, false, Activation::Silu},
    {3, 3, 128, 128, 4, false, true, true, true, Activation::Sigmoid},
    {2, 16, 64, 64, 3, true, false, false, true, Activation::Silu},
    {1, 3, 40, 32, 2, false, false, true, false, Activation::Gelu},
    {3, 15, 96, 16, 4, true, true, true, true, Activation::Silu},
    {2, 14, 72, 8, 3, false, false, true, false, Activation::Silu},
};
constexpr int kLayers = 3, kSteps = 4;

// One token each; slots [n, 2n) are elsewhere. Of three sequences one is new, one goes on in place and one is left twice.
struct Tokens {
  std::vector<int32_t> begin{0}, from, save_begin{0};
  std::vector<StateBatch::Save> saves;
  explicit Tokens(int n) {
    for (int i = 0; i < n; ++i) {
      begin.push_back(i + 1);
      from.push_back(i % 3 == 1 ? -1 : i);
      saves.push_back({1, i});
      if (i % 3 == 2) saves.push_back({1, n + i});
      save_begin.push_back(static_cast<int32_t>(saves.size()));
    }
  }
  // All go on elsewhere, then in place.
  static Tokens elsewhere(int n) {
    Tokens t(n);
    t.saves.clear();
    t.save_begin = {0};
    for (int i = 0; i < n; ++i) {
      t.from[static_cast<size_t>(i)] = i;
      t.saves.push_back({1, n + i});
      t.save_begin.push_back(i + 1);
    }
    return t;
  }
  static Tokens in_place(int n) {
    Tokens t = elsewhere(n);
    for (int i = 0; i < n; ++i) t.from[static_cast<size_t>(i)] = n + i;
    return t;
  }
  StateBatch batch() const { return {begin, from, save_begin, saves}; }
};

class DeltaStepTest : public EachActivation {
 protected:
  // What a layer has besides its states, and where its results go.
  struct Layer {
    Both wide, kernel, bias, gain, rate, decay_bias, room;
    kernels::Memory fused_states, states, mixed, fused;
    kernels::GatedDeltaLayer spec;
    kernels::GatedDeltaInput in;
    TensorView both, out;  // of the operations one by one
  };

  RecurrentOps& ops() { return dynamic_cast<RecurrentOps&>(gpu()); }

  Layer make_layer(const StepShape& s, int n) {
    Layer l;
    const int64_t values = s.value_heads * s.value_dim, channels = 2 * s.key_heads * s.key_dim + values;
    const int64_t decays = s.channel_decay ? s.value_heads * s.key_dim : s.value_heads;
    const int64_t first = decays + s.value_heads, made = first + channels + values;
    l.wide = random(n, made + values);
    const TensorView wide = l.wide.device;
    l.in = {{wide.columns(first, first + channels), wide.columns(0, decays), wide.columns(decays, first)},
            wide.columns(made - values, made)};
    l.both = wide.columns(made - values, made + values);
    l.room = zeros(n, values);
    l.out = l.room.device;
    l.fused = gpu().allocate(l.out.dtype, {n, values});
    l.mixed = gpu().allocate(l.out.dtype, {n, channels});
    l.kernel = vector(s.taps * channels, 0.5f);
    l.bias = vector(channels);
    l.gain = vector(s.value_dim);
    l.decay_bias = vector(decays);
    HostTensor rates = HostTensor::make(DType::F32, {s.value_heads});
    for (int i = 0; i < s.value_heads; ++i) rates.view.at<float>()[i] = -0.2f - std::abs(normal());
    l.rate.device_memory = gpu().upload(rates.view);
    const TensorView kernel =
        TensorView::contiguous(l.kernel.device.data, DType::F32, {s.taps, channels}, Device::Cuda);
    l.spec = {{kernel, s.biased ? l.bias.device : TensorView{}, s.silu},
              {.key_heads = s.key_heads,
               .value_heads = s.value_heads,
               .key_dim = s.key_dim,
               .value_dim = s.value_dim,
               .tiled = s.tiled,
               .channel_decay = s.channel_decay,
               .rate = l.rate.device_memory.view,
               .decay_bias = s.biased ? l.decay_bias.device : TensorView{}},
              s.biased ? TensorView{} : l.gain.device,
              1e-6f,
              s.gate};
    const int64_t kept = l.spec.conv.state_elements() + l.spec.rule.state_elements();
    HostTensor states = HostTensor::make(DType::F32, {2 * n, kept});
    for (int64_t i = 0; i < 2 * n * kept; ++i)
      states.view.at<float>()[i] = 0.2f * static_cast<float>(below(1000)) / 1000.0f - 0.1f;
    l.fused_states = gpu().upload(states.view);
    l.states = gpu().upload(states.view);
    return l;
  }

  void begin(const StateBatch& batch) {
    positions_.assign(static_cast<size_t>(batch.tokens()), 0);
    gpu().begin({batch.query_begin, positions_, {}, {}});
  }
  bool fused(const Layer& l, const StateBatch& batch) {
    return ops().gated_delta(l.fused.view, l.in, l.spec, l.fused_states.view, batch);
  }
  void composed(const Layer& l, const StepShape& s, const StateBatch& batch) {
    const int64_t values = l.out.dim(1), kept = l.spec.conv.state_elements();
    const TensorView states = l.states.view;
    ops().causal_conv(l.mixed.view, l.in.delta.qkv, l.spec.conv, states.columns(0, kept), batch);
    ops().delta_rule(l.both.columns(values, 2 * values), {l.mixed.view, l.in.delta.decay, l.in.delta.beta},
                     l.spec.rule, states.columns(kept, states.dim(1)), batch);
    const TensorView heads = l.both.columns_as_heads(values, s.value_heads, s.value_dim);
    gpu().rms_norm(heads, heads, l.spec.gain, l.spec.norm_eps);
    gpu().gated(l.out, l.both, l.spec.gate);
  }
  bool same(const TensorView& a, const TensorView& b) {
    HostTensor x = HostTensor::make(DType::F32, {a.dim(0), a.dim(1)}),
               y = HostTensor::make(DType::F32, {a.dim(0), a.dim(1)});
    gpu().download(x.view, a);
    gpu().download(y.view, b);
    return std::memcmp(x.view.data, y.view.data, static_cast<size_t>(a.elements()) * sizeof(float)) == 0;
  }
  void compare(const std::vector<Layer>& layers) {
    for (const Layer& l : layers) {
      EXPECT_TRUE(same(l.fused.view, l.out)) << "results";
      EXPECT_TRUE(same(l.fused_states.view, l.states.view)) << "states";
    }
  }
  bool has_kernel() {
    const Layer l = make_layer(kShapes[0], 1);
    const Tokens tokens(1);
    begin(tokens.batch());
    const bool has = fused(l, tokens.batch());
    gpu().synchronize();
    return has;
  }

 private:
  std::vector<int32_t> positions_;
};

TEST_P(DeltaStepTest, HasTheBitsOfItsOperations) {
  if (!has_kernel()) GTEST_SKIP() << "no kernel for this architecture";
  for (const StepShape& shape : kShapes)
    for (const int n : {1, 3, 8, 64}) {
      SCOPED_TRACE(testing::Message() << n << " sequences, " << shape.value_heads << " heads of "
                                      << shape.key_dim << " x " << shape.value_dim);
      std::vector<Layer> layers;
      for (int i = 0; i < kLayers; ++i) layers.push_back(make_layer(shape, n));
      for (const Tokens& tokens : {Tokens(n), Tokens::elsewhere(n), Tokens::in_place(n)}) {
        const StateBatch batch = tokens.batch();
        begin(batch);
        for (const Layer& l : layers) ASSERT_TRUE(fused(l, batch));
        begin(batch);
        for (const Layer& l : layers) composed(l, shape, batch);
        gpu().synchronize();
        compare(layers);
      }
    }
}

// Described, run, recorded and replayed; nothing waits between the steps.
TEST_P(DeltaStepTest, GoesOnFromStepToStep) {
  if (!has_kernel()) GTEST_SKIP() << "no kernel for this architecture";
  for (const int n : {1, 2, 8, 16}) {
    SCOPED_TRACE(testing::Message() << n << " sequences");
    const StepShape& shape = kShapes[n % 2];
    std::vector<Layer> layers;
    for (int i = 0; i < kLayers; ++i) layers.push_back(make_layer(shape, n));
    const Tokens tokens = Tokens::in_place(n);
    const StateBatch batch = tokens.batch();
    for (int step = 0; step < kSteps; ++step)
      gpu().run_step([&] {
        begin(batch);
        for (const Layer& l : layers) ASSERT_TRUE(fused(l, batch));
      });
    gpu().synchronize();
    for (int step = 0; step < kSteps; ++step) {
      begin(batch);
      for (const Layer& l : layers) composed(l, shape, batch);
      gpu().synchronize();
    }
    compare(layers);
  }
}

// One layer alone, whose kernels follow each other; and layers that are gone through twice.
TEST_P(DeltaStepTest, WaitsForItsOwnStates) {
  if (!has_kernel()) GTEST_SKIP() << "no kernel for this architecture";
  const StepShape& shape = kShapes[0];
  const int n = 4;
  const Tokens tokens = Tokens::in_place(n);
  const StateBatch batch = tokens.batch();
  std::vector<Layer> layers;
  for (int i = 0; i < 2; ++i) layers.push_back(make_layer(shape, n));
  begin(batch);
  for (int turn = 0; turn < 20; ++turn) ASSERT_TRUE(fused(layers[0], batch));
  for (int turn = 0; turn < 20; ++turn)
    for (const Layer& l : layers) ASSERT_TRUE(fused(l, batch));
  gpu().synchronize();
  begin(batch);
  for (int turn = 0; turn < 20; ++turn) composed(layers[0], shape, batch);
  for (int turn = 0; turn < 20; ++turn)
    for (const Layer& l : layers) composed(l, shape, batch);
  gpu().synchronize();
  compare(layers);
}

TEST_P(DeltaStepTest, LeavesOtherStepsAndShapesAlone) {
  const Layer l = make_layer(kShapes[0], 3);
  const std::vector<int32_t> begins{0, 3}, from{0}, save_begin{0, 1};
  const std::vector<StateBatch::Save> saves{{3, 0}};
  const StateBatch longer{begins, from, save_begin, saves};
  begin(longer);
  EXPECT_FALSE(fused(l, longer)) << "more than one token of a sequence";
  const Tokens tokens(3);
  for (const StepShape& shape : {StepShape{2, 4, 128, 256, 4, false, false, true, false, Activation::Silu},
                                 StepShape{2, 4, 200, 128, 4, false, false, true, false, Activation::Silu},
                                 StepShape{2, 4, 64, 96, 4, false, false, true, false, Activation::Silu},
                                 StepShape{2, 4, 64, 64, 7, false, false, true, false, Activation::Silu},
                                 StepShape{1, 12, 64, 64, 4, false, false, true, false, Activation::Silu}}) {
    const Layer other = make_layer(shape, 3);
    begin(tokens.batch());
    EXPECT_FALSE(fused(other, tokens.batch())) << shape.key_dim << " x " << shape.value_dim;
  }
  gpu().synchronize();
}

INSTANTIATE_TEST_SUITE_P(Types, DeltaStepTest, kEachActivation, [](const auto& one) { return name_of(one); });

}  // namespace
}  // namespace sluice::cuda_test
