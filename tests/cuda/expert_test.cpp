// Mixtures on the CUDA back-end against the reference.
#include <algorithm>

#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::ExpertBank;
using kernels::Routing;

class ExpertTest : public EachActivation {
 protected:
  struct Chosen {
    HostTensor ids, weights;
    kernels::Memory device_ids, device_weights;
  };
  Chosen choose(const Both& logits, const Routing& routing, const Routing& device_routing) {
    const int64_t n = logits.host.dim(0);
    Chosen c{HostTensor::make(DType::I32, {n, routing.used}), HostTensor::make(DType::F32, {n, routing.used}),
             gpu().allocate(DType::I32, {n, routing.used}), gpu().allocate(DType::F32, {n, routing.used})};
    ref().route(c.ids.view, c.weights.view, logits.host, routing);
    gpu().route(c.device_ids.view, c.device_weights.view, logits.device, device_routing);
    return c;
  }
};

TEST_P(ExpertTest, RoutesAlike) {
  for (auto score : {Routing::Score::Softmax, Routing::Score::Sigmoid, Routing::Score::SoftmaxOfTop}) {
    for (int groups : {1, 4}) {
      for (bool biased : {false, true}) {
        Routing routing;
        routing.score = score;
        routing.experts = 64;
        routing.used = 6;
        routing.normalize = biased;
        routing.scale = 2.5f;
        routing.groups = groups;
        routing.groups_used = groups == 1 ? 1 : 2;
        const Both bias = vector(64, 0.1f), logits = random(30, 64);
        Routing device_routing = routing;
        if (biased) routing.choice_bias = bias.host, device_routing.choice_bias = bias.device;
        if (biased) routing.weight_scale = bias.host, device_routing.weight_scale = bias.device;
        const Chosen c = choose(logits, routing, device_routing);
        HostTensor ids = HostTensor::make(DType::I32, {30, 6});
        gpu().download(ids.view, c.device_ids.view);
        int differing = 0;
        for (int i = 0; i < 180; ++i) differing += ids.view.at<int32_t>()[i] != c.ids.view.at<int32_t>()[i];
        // Equal logits are ties on both sides; sums of rounded scores may still rank two groups
        // differently.
        EXPECT_LE(differing, groups == 1 ? 0 : 6) << static_cast<int>(score) << " groups " << groups;
        if (differing == 0) {
          EXPECT_LT(error(c.weights.view, c.device_weights.view), 1e-4);
        }
      }
    }
  }
}

TEST_P(ExpertTest, WeighsTheChosenAgainstTheirNeighbours) {
  Routing routing;
  routing.score = Routing::Score::SparseMixer;
  routing.experts = 16;
  routing.used = 2;
  routing.margin = 0.4f;
  const Both logits = random(50, 16);
  const Chosen c = choose(logits, routing, routing);
  HostTensor ids = HostTensor::make(DType::I32, {50, 2});
  gpu().download(ids.view, c.device_ids.view);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ids.view.at<int32_t>()[i], c.ids.view.at<int32_t>()[i]) << i;
  EXPECT_LT(error(c.weights.view, c.device_weights.view), 1e-4);
}

// Results in f32 of activations in bf16, as routers need them.
TEST_P(ExpertTest, LogitsAreNotRounded) {
  if (activations_ != DType::BF16) return;
  const BothWeight router = weight({DType::BF16}, 72, 264, true),
                   packed = weight({DType::Q8_0}, 64, 256, false);
  for (int64_t n : {1, 5, 300, 700}) {
    const Both x = random(n, 264);
    HostTensor expected = HostTensor::make(DType::F32, {n, 72});
    const kernels::Memory logits = gpu().allocate(DType::F32, {n, 72});
    ref().matmul(expected.view, x.host, router.host);
    gpu().matmul(logits.view, x.device, router.device);
    EXPECT_LT(error(expected.view, logits.view), 1e-5) << n;
  }
  // Rows that a library of GEMMs takes, and some behind them.
  const BothWeight odd = weight({DType::BF16}, 65, 264, true);
  for (int64_t n : {1, 9, 600}) {
    const Both x = random(n, 264);
    HostTensor expected = HostTensor::make(DType::F32, {n, 65});
    const kernels::Memory room = gpu().allocate(DType::F32, {n, 68});
    const TensorView logits = room.view.columns(0, 65);
    ref().matmul(expected.view, x.host, odd.host);
    gpu().matmul(logits, x.device, odd.device);
    EXPECT_LT(error(expected.view, logits), 1e-5) << n;
  }
  const Both x = random(9, 256);
  HostTensor expected = HostTensor::make(DType::F32, {9, 64});
  const kernels::Memory logits = gpu().allocate(DType::F32, {9, 64});
  ref().matmul(expected.view, x.host, packed.host);
  gpu().matmul(logits.view, x.device, packed.device);
  EXPECT_LT(error(expected.view, logits.view), tolerance());
}

TEST_P(ExpertTest, MixesAlike) {
  listed_ = true;
  struct Kind {
    bool gated, weigh_inputs;
    float limit = 0.0f;
  };
  for (DType type : {DType::BF16, DType::Q4_K, DType::MXFP4}) {
    for (const auto [gated, weigh_inputs, limit] :
         {Kind{true, false}, {false, false}, {true, true}, {true, false, 0.05f}}) {
      constexpr int kExperts = 8;
      ExpertBank host, device_bank;
      std::vector<BothWeight> all;
      for (int e = 0; e < kExperts; ++e) {
        all.push_back(weight({type}, gated ? 1024 : 512, 256, true));
        host.gate_up.push_back(all.back().host);
        device_bank.gate_up.push_back(all.back().device);
        all.push_back(weight({type}, 256, 512, true));
        host.down.push_back(all.back().host);
        device_bank.down.push_back(all.back().device);
      }
      host.gated = device_bank.gated = gated;
      host.weigh_inputs = device_bank.weigh_inputs = weigh_inputs;
      host.limit = device_bank.limit = limit;
      for (int64_t n : {1, 3, 40, 150}) {
        Routing routing;
        routing.experts = kExperts;
        routing.used = 3;
        const Both logits = random(n, kExperts), x = random(n, 256, 0.1f);
        const Chosen c = choose(logits, routing, routing);
        Both out = zeros(n, 256);
        ref().moe_ffn(out.host, x.host, c.ids.view, c.weights.view, host);
        gpu().moe_ffn(out.device, x.device, c.device_ids.view, c.device_weights.view, device_bank);
        EXPECT_LT(error(out.host, out.device), 2 * tolerance())
            << name(type) << " n " << n << " gated " << gated << " limit " << limit;
      }
    }
  }
}

// Within a step the choice of few tokens may be made by what sorts by it: the same experts and results, and both stored.
TEST_P(ExpertTest, ChoosesWithinAStep) {
  listed_ = true;
  for (const int experts : {8, 136}) {
    ExpertBank host, device_bank;
    std::vector<BothWeight> all;
    constexpr int kAlways = 2;
    for (int e = 0; e < experts + kAlways; ++e) {
      all.push_back(weight({DType::BF16}, 256, 256, true));
      host.gate_up.push_back(all.back().host);
      device_bank.gate_up.push_back(all.back().device);
      all.push_back(weight({DType::BF16}, 256, 128, true));
      host.down.push_back(all.back().host);
      device_bank.down.push_back(all.back().device);
    }
    for (const bool weigh_inputs : {false, true}) {
      host.weigh_inputs = device_bank.weigh_inputs = weigh_inputs;
      // Read by pair, sorted with gathered rows, sorted and gathered after, and too many for a choice within.
      for (const int64_t n : {1, 4, 8, 9, 65}) {
        Routing routing;
        routing.score = weigh_inputs ? Routing::Score::Sigmoid : Routing::Score::SoftmaxOfTop;
        routing.experts = experts;
        routing.used = 3;
        routing.scale = 2.5f;
        routing.always = kAlways;
        routing.always_weight = 0.7f;
        routing.always_gated = weigh_inputs;
        const Both flat = vector(n * routing.logits()), x = random(n, 256, 0.1f);
        const auto rows = [&](const TensorView& v, Device where) {
          return TensorView::contiguous(v.data, DType::F32, {n, routing.logits()}, where);
        };
        HostTensor ids = HostTensor::make(DType::I32, {n, 5}), weights = HostTensor::make(DType::F32, {n, 5});
        HostTensor device_ids = HostTensor::make(DType::I32, {n, 5});
        const kernels::Memory ids_there = gpu().allocate(DType::I32, {n, 5}),
                              weights_there = gpu().allocate(DType::F32, {n, 5});
        Both out = zeros(n, 256);
        ref().route(ids.view, weights.view, rows(flat.host, Device::Cpu), routing);
        ref().moe_ffn(out.host, x.host, ids.view, weights.view, host);
        for (int turn = 0; turn < 3; ++turn) {
          gpu().run_step([&] {
            gpu().route(ids_there.view, weights_there.view, rows(flat.device, Device::Cuda), routing);
            gpu().moe_ffn(out.device, x.device, ids_there.view, weights_there.view, device_bank);
          });
        }
        gpu().synchronize();
        gpu().download(device_ids.view, ids_there.view);
        for (int64_t i = 0; i < n * 5; ++i)
          ASSERT_EQ(device_ids.view.at<int32_t>()[i], ids.view.at<int32_t>()[i]) << n << " of " << experts;
        EXPECT_LT(error(weights.view, weights_there.view), 1e-4) << n << " of " << experts;
        EXPECT_LT(error(out.host, out.device), 2 * tolerance()) << n << " of " << experts;
      }
    }
  }
}

// A choice that nothing of the step uses is made all the same.
TEST_P(ExpertTest, AChoiceThatWasPutOffIsMade) {
  Routing routing;
  routing.experts = 16;
  routing.used = 4;
  const Both flat = vector(3 * 16);
  HostTensor ids = HostTensor::make(DType::I32, {3, 4}), weights = HostTensor::make(DType::F32, {3, 4});
  HostTensor found = HostTensor::make(DType::I32, {3, 4});
  const kernels::Memory ids_there = gpu().allocate(DType::I32, {3, 4}),
                        weights_there = gpu().allocate(DType::F32, {3, 4});
  const auto rows = [&](const TensorView& v, Device where) {
    return TensorView::contiguous(v.data, DType::F32, {3, 16}, where);
  };
  ref().route(ids.view, weights.view, rows(flat.host, Device::Cpu), routing);
  for (int turn = 0; turn < 3; ++turn)
    gpu().run_step(
        [&] { gpu().route(ids_there.view, weights_there.view, rows(flat.device, Device::Cuda), routing); });
  gpu().synchronize();
  gpu().download(found.view, ids_there.view);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(found.view.at<int32_t>()[i], ids.view.at<int32_t>()[i]) << i;
}

// Ranks that have a range of the experts each.
TEST_P(ExpertTest, RangesOfExpertsAddUp) {
  listed_ = true;
  constexpr int kExperts = 8;
  std::vector<BothWeight> all;
  ExpertBank host;
  ExpertBank halves[2];
  for (int e = 0; e < kExperts; ++e) {
    ExpertBank& half = halves[e / (kExperts / 2)];
    all.push_back(weight({DType::BF16}, 1024, 256, true));
    host.gate_up.push_back(all.back().host);
    half.gate_up.push_back(all.back().device);
    all.push_back(weight({DType::BF16}, 256, 512, true));
    host.down.push_back(all.back().host);
    half.down.push_back(all.back().device);
  }
  halves[1].first = kExperts / 2;
  for (int64_t n : {1, 3, 150}) {
    Routing routing;
    routing.experts = kExperts;
    routing.used = 3;
    const Both logits = random(n, kExperts), x = random(n, 256, 0.1f);
    Both out = zeros(n, 256), other = zeros(n, 256);
    Chosen c = choose(logits, routing, routing);
    ref().moe_ffn(out.host, x.host, c.ids.view, c.weights.view, host);
    gpu().moe_ffn(out.device, x.device, c.device_ids.view, c.device_weights.view, halves[0]);
    c = choose(logits, routing, routing);
    gpu().moe_ffn(other.device, x.device, c.device_ids.view, c.device_weights.view, halves[1]);
    gpu().add(out.device, out.device, other.device);
    EXPECT_LT(error(out.host, out.device), 2 * tolerance()) << n;
  }
}

// All tokens choose two experts that lie at the same place of their ranks' ranges: in either range one expert has two slots of
// each token.
TEST_P(ExpertTest, SlotsOfOtherRanksMeetInOneExpert) {
  listed_ = true;
  constexpr int kExperts = 512, kFirst = 3;
  constexpr int64_t kTokens = 1024, kDim = 64, kInner = 32;
  std::vector<BothWeight> all;
  ExpertBank host;
  ExpertBank halves[2];
  for (int e = 0; e < kExperts; ++e) {
    ExpertBank& half = halves[e / (kExperts / 2)];
    all.push_back(weight({DType::BF16}, 2 * kInner, kDim, true));
    host.gate_up.push_back(all.back().host);
    half.gate_up.push_back(all.back().device);
    all.push_back(weight({DType::BF16}, kDim, kInner, true));
    host.down.push_back(all.back().host);
    half.down.push_back(all.back().device);
  }
  halves[1].first = kExperts / 2;
  Routing routing;
  routing.experts = kExperts;
  routing.used = 2;
  Both logits{HostTensor::make(DType::F32, {kTokens, kExperts}), {}, {}, {}};
  logits.host = logits.host_memory.view;
  std::fill_n(logits.host.at<float>(), kTokens * kExperts, 0.0f);
  for (int64_t t = 0; t < kTokens; ++t) {
    logits.host.at<float>(t)[kFirst] = 9.0f;
    logits.host.at<float>(t)[kFirst + kExperts / 2] = 8.0f;
  }
  logits.device_memory = gpu().upload(logits.host);
  logits.device = logits.device_memory.view;
  const Both x = random(kTokens, kDim, 0.1f);
  Both out = zeros(kTokens, kDim), other = zeros(kTokens, kDim);
  Chosen c = choose(logits, routing, routing);
  ref().moe_ffn(out.host, x.host, c.ids.view, c.weights.view, host);
  gpu().moe_ffn(out.device, x.device, c.device_ids.view, c.device_weights.view, halves[0]);
  c = choose(logits, routing, routing);
  gpu().moe_ffn(other.device, x.device, c.device_ids.view, c.device_weights.view, halves[1]);
  gpu().add(out.device, out.device, other.device);
  EXPECT_LT(error(out.host, out.device), 2 * tolerance());
}

// Tiles that end within an expert's entries and rows, of single blocks and of clusters, experts with many, few and no entries,
// columns that are not whole steps, and packed matrices, in f32 more than one panel has room for.
TEST_P(ExpertTest, MixesManyEntries) {
  listed_ = true;
  struct Kind {
    std::vector<DType> up;  // gate and up, or both in one
    DType down;
    int experts;
    int64_t dim, inner;
    std::vector<int64_t> tokens = {96, 129, 400};
  };
  constexpr int kUsed = 2;
  for (const auto& [up, down, experts, dim, inner, tokens] :
       {Kind{{DType::BF16}, DType::BF16, 12, 264, 328},
        {{DType::Q8_0}, DType::BF16, 4, 288, 320},
        {{DType::Q4_0, DType::Q5_0}, DType::Q8_0, 4, 288, 352},
        {{DType::Q4_K}, DType::Q6_K, 12, 1280, 1280, {490}},
        {{DType::MXFP4, DType::MXFP4}, DType::MXFP4, 4, 96, 160},
        {{DType::BF16}, DType::BF16, 4, 512, 328, {700, 1500}},
        {{DType::BF16}, DType::BF16, 8, 328, 256, {3000}},
        {{DType::BF16}, DType::BF16, 8, 512, 320, {1000}},
        {{DType::BF16}, DType::BF16, 5, 384, 704, {900}},
        {{DType::Q5_0}, DType::Q8_0, 5, 384, 704, {900}}}) {
    ExpertBank host, device_bank;
    std::vector<BothWeight> all;
    for (int e = 0; e < experts; ++e) {
      all.push_back(weight(up, 2 * inner / std::ssize(up), dim, true));
      host.gate_up.push_back(all.back().host);
      device_bank.gate_up.push_back(all.back().device);
      all.push_back(weight({down}, dim, inner, true));
      host.down.push_back(all.back().host);
      device_bank.down.push_back(all.back().device);
    }
    for (int64_t n : tokens) {
      Routing routing;
      routing.experts = experts;
      routing.used = kUsed;
      // Far apart, beside scores up to one: some experts are chosen by most tokens, others by none.
      const Both bias = vector(experts), logits = random(n, experts);
      Routing device_routing = routing;
      routing.choice_bias = bias.host, device_routing.choice_bias = bias.device;
      const Both x = random(n, dim, 0.1f);
      const Chosen c = choose(logits, routing, device_routing);
      Both out = zeros(n, dim);
      ref().moe_ffn(out.host, x.host, c.ids.view, c.weights.view, host);
      gpu().moe_ffn(out.device, x.device, c.device_ids.view, c.device_weights.view, device_bank);
      EXPECT_LT(error(out.host, out.device), 2 * tolerance()) << name(down) << " n " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, ExpertTest, kEachActivation, name_of);

}  // namespace
}  // namespace sluice::cuda_test
