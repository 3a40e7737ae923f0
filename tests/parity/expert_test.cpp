// Routing and mixtures of every level against the reference.
#include <cmath>

#include "kernels/ref/ref.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Activation;
using kernels::Backend;
using kernels::ExpertBank;
using kernels::Routing;

struct Routed {
  HostTensor ids;
  HostTensor weights;
};

Routed route(Backend& backend, const TensorView& logits, const Routing& routing) {
  Routed routed{HostTensor::make(DType::I32, {logits.dim(0), routing.slots()}),
                HostTensor::make(DType::F32, {logits.dim(0), routing.slots()})};
  backend.route(routed.ids.view, routed.weights.view, logits, routing);
  return routed;
}

void check_route(const Routing& routing, const TensorView& logits) {
  const auto reference = kernels::make_ref_backend();
  const Routed expected = route(*reference, logits, routing);
  for (const auto& backend : cpu_backends(2)) {
    const Routed routed = route(*backend, logits, routing);
    for (int64_t i = 0; i < routed.ids.view.elements(); ++i) {
      ASSERT_EQ(routed.ids.view.at<int32_t>()[i], expected.ids.view.at<int32_t>()[i]) << backend->name();
    }
    ASSERT_TRUE(near(routed.weights.view, expected.weights.view, 1e-6f)) << backend->name();
  }
}

TEST(Route, ScoresNormalisationAndGroups) {
  Random random(41);
  const HostTensor logits = random.tensor({33, 24});
  const HostTensor bias = random.tensor({24}, 0.3f);
  for (Routing::Score score :
       {Routing::Score::Softmax, Routing::Score::Sigmoid, Routing::Score::SoftmaxOfTop}) {
    for (bool normalize : {false, true}) {
      Routing routing;
      routing.score = score;
      routing.experts = 24;
      routing.used = 5;
      routing.normalize = normalize;
      routing.scale = 2.5f;
      check_route(routing, logits.view);
      routing.weight_scale = bias.view;
      routing.choice_bias = bias.view;
      check_route(routing, logits.view);
      routing.groups = 6;
      routing.groups_used = 3;
      check_route(routing, logits.view);
    }
  }
}

TEST(Route, SparseMixerWeighsEachChoiceAgainstItsNeighbours) {
  Random random(43);
  const HostTensor noise = random.tensor({33, 24}, 0.1f);
  Routing routing;
  routing.score = Routing::Score::SparseMixer;
  routing.experts = 24;
  routing.used = 3;
  for (float margin : {0.0f, 0.02f, 0.5f}) {
    routing.margin = margin;
    check_route(routing, noise.view);
  }

  // Within a hundredth of 2: 1.99 alone. Within a hundredth of 1.99: itself alone.
  std::vector<float> logits{-1.0f, 1.99f, 2.0f, 1.5f};
  routing.experts = 4;
  routing.used = 2;
  routing.margin = 0.01f;
  const auto reference = kernels::make_ref_backend();
  const Routed routed = route(*reference, TensorView::contiguous(logits.data(), DType::F32, {1, 4}), routing);
  EXPECT_EQ(routed.ids.view.at<int32_t>()[0], 2);
  EXPECT_EQ(routed.ids.view.at<int32_t>()[1], 1);
  EXPECT_NEAR(routed.weights.view.at<float>()[0], 1.0f / (1.0f + std::exp(-0.01f)), 1e-6f);
  EXPECT_FLOAT_EQ(routed.weights.view.at<float>()[1], 1.0f);
}

// Behind the chosen ones, for every score.
TEST(Route, ExpertsThatEveryTokenUses) {
  Random random(44);
  const HostTensor logits = random.tensor({5, 24}, 0.1f);
  for (Routing::Score score : {Routing::Score::Softmax, Routing::Score::SparseMixer}) {
    Routing routing;
    routing.score = score;
    routing.experts = 24;
    routing.used = 3;
    routing.always = 2;
    routing.always_weight = 0.7f;
    check_route(routing, logits.view);
    Routing gated = routing;
    gated.experts = 23;
    gated.always_gated = true;
    check_route(gated, logits.view);
    EXPECT_NEAR(route(*kernels::make_ref_backend(), logits.view, gated).weights.view.at<float>()[3],
                0.7f / (1.0f + std::exp(-logits.view.at<float>()[23])), 1e-6f);
    const Routed routed = route(*kernels::make_ref_backend(), logits.view, routing);
    for (int64_t token = 0; token < 5; ++token) {
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(routed.ids.view.at<int32_t>(token)[3 + i], 24 + i);
        EXPECT_EQ(routed.weights.view.at<float>(token)[3 + i], 0.7f);
      }
    }
  }
}

TEST(Route, TiesGoToTheLowerExpert) {
  HostTensor logits = HostTensor::make(DType::F32, {1, 8});
  logits.view.at<float>()[6] = 1.0f;
  Routing routing;
  routing.experts = 8;
  routing.used = 3;
  for (const auto& backend : cpu_backends(1)) {
    const Routed routed = route(*backend, logits.view, routing);
    EXPECT_EQ(routed.ids.view.at<int32_t>()[0], 6);
    EXPECT_EQ(routed.ids.view.at<int32_t>()[1], 0);
    EXPECT_EQ(routed.ids.view.at<int32_t>()[2], 1);
  }
  check_route(routing, logits.view);
}

struct OwnedBank {
  std::vector<OwnedWeight> memory;
  ExpertBank bank;
};

OwnedBank random_bank(Random& random, DType type, bool gated, bool bias) {
  OwnedBank owned;
  for (int expert = 0; expert < 6; ++expert) {
    owned.memory.push_back(random_weight(random, {type}, gated ? 192 : 96, 64, bias));
    owned.bank.gate_up.push_back(owned.memory.back().weight);
    owned.memory.push_back(random_weight(random, {type}, 64, 96, bias));
    owned.bank.down.push_back(owned.memory.back().weight);
  }
  owned.bank.gated = gated;
  return owned;
}

TEST(MixExperts, AgreesAndDependsOnTheTokenAlone) {
  const auto reference = kernels::make_ref_backend();
  for (Activation activation : {Activation::Silu, Activation::SwigluOai, Activation::Relu2}) {
    Random random(42);
    OwnedBank owned = random_bank(random, DType::BF16, activation != Activation::Relu2, true);
    owned.bank.activation = activation;
    owned.bank.weigh_inputs = activation == Activation::Relu2;
    // Squares reach tens and no weight scales them down: what a level with pairs of bf16 keeps of them shows in the sum.
    const float tolerance = owned.bank.weigh_inputs ? 1e-3f : 1e-4f;
    const HostTensor logits = random.tensor({17, 6});
    Routing routing;
    routing.experts = 6;
    routing.used = 3;
    const Routed routed = route(*reference, logits.view, routing);
    const HostTensor x = random.tensor({17, 64}, 0.1f);
    HostTensor expected = HostTensor::make(DType::F32, {17, 64});
    reference->moe_ffn(expected.view, x.view, routed.ids.view, routed.weights.view, owned.bank);
    for (const auto& backend : cpu_backends(2)) {
      SCOPED_TRACE(backend->name());
      HostTensor out = HostTensor::make(DType::F32, {17, 64});
      backend->moe_ffn(out.view, x.view, routed.ids.view, routed.weights.view, owned.bank);
      ASSERT_TRUE(near(out.view, expected.view, tolerance));
      HostTensor alone = HostTensor::make(DType::F32, {1, 64});
      for (int64_t i = 0; i < 17; ++i) {
        backend->moe_ffn(alone.view, x.view.rows(i, i + 1), routed.ids.view.rows(i, i + 1),
                         routed.weights.view.rows(i, i + 1), owned.bank);
        ASSERT_TRUE(same_bits(alone.view, out.view.rows(i, i + 1)));
      }
    }
  }
}

// The parts of a bank that is cut into ranges of experts add up to the whole of it.
TEST(MixExperts, RangesOfExpertsAddUp) {
  const auto reference = kernels::make_ref_backend();
  Random random(44);
  const OwnedBank owned = random_bank(random, DType::F32, true, true);
  const HostTensor logits = random.tensor({13, 6});
  Routing routing;
  routing.experts = 6;
  routing.used = 3;
  const Routed routed = route(*reference, logits.view, routing);
  const HostTensor x = random.tensor({13, 64}, 0.1f);
  HostTensor expected = HostTensor::make(DType::F32, {13, 64});
  reference->moe_ffn(expected.view, x.view, routed.ids.view, routed.weights.view, owned.bank);
  const auto check = [&](Backend& backend) {
    HostTensor sum = HostTensor::make(DType::F32, {13, 64}), part = HostTensor::make(DType::F32, {13, 64});
    for (const auto& [begin, end] : {std::pair{0, 2}, {2, 5}, {5, 6}}) {
      ExpertBank range = owned.bank;
      range.first = begin;
      range.gate_up.assign(owned.bank.gate_up.begin() + begin, owned.bank.gate_up.begin() + end);
      range.down.assign(owned.bank.down.begin() + begin, owned.bank.down.begin() + end);
      backend.moe_ffn(part.view, x.view, routed.ids.view, routed.weights.view, range);
      backend.add(sum.view, sum.view, part.view);
    }
    ASSERT_TRUE(near(sum.view, expected.view, 1e-4f)) << backend.name();
  };
  check(*reference);
  for (const auto& backend : cpu_backends(2)) check(*backend);
}

TEST(MixExperts, BlockTypesDependOnTheTokenAlone) {
  Random random(43);
  OwnedBank owned = random_bank(random, DType::MXFP4, true, true);
  owned.bank.activation = Activation::SwigluOai;
  const HostTensor logits = random.tensor({9, 6});
  Routing routing;
  routing.experts = 6;
  routing.used = 2;
  const HostTensor x = random.tensor({9, 64}, 0.1f);
  for (const auto& backend : cpu_backends(2)) {
    const Routed routed = route(*backend, logits.view, routing);
    HostTensor out = HostTensor::make(DType::F32, {9, 64});
    HostTensor alone = HostTensor::make(DType::F32, {1, 64});
    backend->moe_ffn(out.view, x.view, routed.ids.view, routed.weights.view, owned.bank);
    for (int64_t i = 0; i < 9; ++i) {
      backend->moe_ffn(alone.view, x.view.rows(i, i + 1), routed.ids.view.rows(i, i + 1),
                       routed.weights.view.rows(i, i + 1), owned.bank);
      ASSERT_TRUE(same_bits(alone.view, out.view.rows(i, i + 1))) << backend->name();
    }
  }
}

}  // namespace
}  // namespace sluice::parity
