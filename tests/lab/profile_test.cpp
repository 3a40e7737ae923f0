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

}  // namespace
}  // namespace sluice::lab
