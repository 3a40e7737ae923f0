// What a profile counts: calls, bytes and multiplications of each operation, and nothing of what ran before clear().
#include "lab/profile.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu.h"

namespace sluice::lab {
namespace {

TEST(Profile, CountsWhatGemmsReadAndMultiply) {
  ProfiledBackend backend(kernels::make_cpu_backend({1, ""}).value());
  const HostTensor matrix = HostTensor::make(DType::Q8_0, {48, 64});
  const kernels::Weight weight{.parts = {matrix.view}, .rows = 48, .cols = 64};
  const HostTensor x = HostTensor::make(DType::F32, {3, 64});
  HostTensor out = HostTensor::make(DType::F32, {3, 48});
  backend.matmul(out.view, x.view, weight);
  backend.clear();
  backend.matmul(out.view, x.view, weight);
  backend.matmul(out.view, x.view, weight);
  backend.scale(out.view, 2.0f);

  const std::vector<OperationCost> costs = backend.costs();
  ASSERT_EQ(costs.size(), 2u);
  const OperationCost& gemm = costs[0].name == "scale" ? costs[1] : costs[0];
  EXPECT_EQ(gemm.name, "matmul 48 x 64 Q8_0");
  EXPECT_EQ(gemm.calls, 2);
  EXPECT_GT(gemm.seconds, 0);
  EXPECT_EQ(gemm.cost.bytes, 2.0 * 48 * 2 * 34);
  EXPECT_EQ(gemm.cost.operations[static_cast<size_t>(Arithmetic::Int8)], 2.0 * 2 * 3 * 48 * 64);
}

TEST(Profile, PassesResultsOn) {
  const std::shared_ptr<kernels::Backend> plain = kernels::make_cpu_backend({1, ""}).value();
  ProfiledBackend backend(plain);
  HostTensor x = HostTensor::make(DType::F32, {1, 4});
  for (int i = 0; i < 4; ++i) x.view.at<float>(0)[i] = static_cast<float>(i);
  backend.scale(x.view, 0.5f);
  EXPECT_EQ(x.view.at<float>(0)[3], 1.5f);
  EXPECT_EQ(backend.name(), plain->name());
}

// A layer of the delta rule reads and writes its state once a step, however many tokens there are.
TEST(Profile, CountsStatesOfRecurrentLayers) {
  ProfiledBackend backend(kernels::make_cpu_backend({1, ""}).value());
  kernels::RecurrentOps* ops = kernels::recurrent_ops(backend);
  ASSERT_NE(ops, nullptr);
  const HostTensor rate = HostTensor::make(DType::F32, {2}), bias = HostTensor::make(DType::F32, {2});
  const kernels::DeltaRule rule{.key_heads = 1,
                                .value_heads = 2,
                                .key_dim = 8,
                                .value_dim = 4,
                                .rate = rate.view,
                                .decay_bias = bias.view};
  const HostTensor qkv = HostTensor::make(DType::F32, {3, 24}), gates = HostTensor::make(DType::F32, {3, 2});
  const HostTensor out = HostTensor::make(DType::F32, {3, 8}), states = HostTensor::make(DType::F32, {1, 64});
  const std::vector<int32_t> begin{0, 3}, from{-1}, save_begin{0, 1};
  const std::vector<kernels::StateBatch::Save> saves{{3, 0}};
  ops->delta_rule(out.view, {qkv.view, gates.view, gates.view}, rule, states.view,
                  {begin, from, save_begin, saves});
  const std::vector<OperationCost> costs = backend.costs();
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_EQ(costs[0].name, "delta_rule");
  EXPECT_EQ(costs[0].cost.bytes, 4.0 * (3 * 24 + 2 * 3 * 2 + 3 * 8 + 2 * 64));
  EXPECT_EQ(costs[0].cost.operations[static_cast<size_t>(Arithmetic::F32)], 7.0 * 3 * 64);
}

}  // namespace
}  // namespace sluice::lab
