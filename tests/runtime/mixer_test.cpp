// Parts of a layer on the reference, against their formulas in plain numbers.
#include "models/layers/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ref/ref.h"

namespace sluice::models {
namespace {

// What parts need besides weights: tokens at the given positions of one sequence, and no keys and values.
struct Surroundings {
  explicit Surroundings(std::vector<int32_t> at) : positions(std::move(at)) {
    spec.dim = 4;
    batch.positions = positions;
  }
  LayerContext context() { return {*backend, scratch, spec, batch, kv, {}, states}; }

  std::vector<int32_t> positions;
  std::unique_ptr<kernels::Backend> backend = kernels::make_ref_backend();
  Scratch scratch{*backend};
  ModelSpec spec;
  kernels::RaggedBatch batch;
  kernels::PagedKv kv;
  kernels::StateBatch states;
};

HostTensor tensor(std::initializer_list<int64_t> shape, const std::vector<float>& values) {
  HostTensor made = HostTensor::make(DType::F32, shape);
  std::copy(values.begin(), values.end(), made.view.at<float>());
  return made;
}

TEST(Mixers, XieluCurvesBothSides) {
  Surroundings around({0});
  HostTensor identity = tensor({4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  const Weight weight{{identity.view}, 4, 4, {}, {}};
  const XieluWeights weights{weight, weight, {.alpha_p = 0.3f, .alpha_n = -0.2f, .beta = 0.5f}};
  const std::vector<float> inputs{-3.0f, -0.25f, 0.0f, 1.5f};
  HostTensor x = tensor({1, 4}, inputs), out = tensor({1, 4}, {});
  const LayerContext context = around.context();
  const XieluFfn ffn{.inner = 4, .parameters = {}};
  finish(context.backend, out.view, run_ffn(ffn, weights, context, out.view, x.view));
  const double positive = std::log1p(std::exp(0.3)), negative = 0.5 + std::log1p(std::exp(-0.2));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double v = inputs[i];
    const double expected = v > 0 ? positive * v * v + 0.5 * v : negative * (std::expm1(v) - v) + 0.5 * v;
    EXPECT_NEAR(out.view.at<float>()[i], expected, 1e-5) << v;
  }
}

TEST(Mixers, NormsBeforeTheDownMatrix) {
  Surroundings around({0});
  around.spec.norm_eps = 0.0f;
  HostTensor identity = tensor({4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  HostTensor gain = tensor({4}, {1, 2, 1, 1});
  const Weight weight{{identity.view}, 4, 4, {}, {}};
  HostTensor x = tensor({1, 4}, {3, 3, 3, 3}), out = tensor({1, 4}, {});
  const DenseFfn ffn{.inner = 4, .activation = Activation::Relu, .gated = false, .norm_inner = true};
  const DenseWeights weights{weight, weight, {gain.view, {}}};
  const LayerContext context = around.context();
  finish(context.backend, out.view, run_ffn(ffn, weights, context, out.view, x.view));
  EXPECT_FLOAT_EQ(out.view.at<float>()[0], 1.0f);
  EXPECT_FLOAT_EQ(out.view.at<float>()[1], 2.0f);
}

TEST(Mixers, QueriesGrowHotterInSteps) {
  Surroundings around({0, 2, 3, 6, 7});
  HostTensor q = tensor({5, 2}, std::vector<float>(10, 1.0f));
  scale_queries({.slope = 0.5f, .length = 4, .offset = 1}, around.context(), q.view);
  const int steps[] = {0, 0, 1, 1, 2};
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_FLOAT_EQ(q.view.at<float>(i)[1], 1.0f + 0.5f * std::log(1.0f + static_cast<float>(steps[i]))) << i;
}

}  // namespace
}  // namespace sluice::models
