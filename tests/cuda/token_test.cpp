// Token-wise operations of the CUDA back-end against the reference.
#include "tensor/half.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::Activation;

class TokenTest : public EachActivation {};

constexpr int64_t kDims[] = {7, 64, 100, 128, 256, 264, 4096, 14336, 40000};
constexpr int64_t kCounts[] = {1, 3, 33};

TEST_P(TokenTest, NormsOfEveryWidth) {
  for (int64_t dim : kDims) {
    for (int64_t n : kCounts) {
      SCOPED_TRACE(::testing::Message() << "n " << n << " dim " << dim);
      const Both x = random(n, dim), gain = vector(dim), bias = vector(dim);
      Both out = zeros(n, dim);
      ref().rms_norm(out.host, x.host, gain.host, 1e-5f);
      gpu().rms_norm(out.device, x.device, gain.device, 1e-5f);
      EXPECT_LT(error(out.host, out.device), tolerance());
      ref().rms_norm(out.host, x.host, {}, 1e-5f);
      gpu().rms_norm(out.device, x.device, {}, 1e-5f);
      EXPECT_LT(error(out.host, out.device), tolerance());
      ref().layer_norm(out.host, x.host, gain.host, bias.host, 1e-5f);
      gpu().layer_norm(out.device, x.device, gain.device, bias.device, 1e-5f);
      EXPECT_LT(error(out.host, out.device), tolerance());
    }
  }
}

TEST_P(TokenTest, NormOfManyLongRows) {
  for (int64_t dim : {264, 512, 1024, 2048, 4096, 8192}) {
    const int64_t n = 1100;
    Both x = random(n, dim);
    const Both branch = random(n, dim), gain = vector(dim);
    Both out = zeros(n, dim);
    ref().add_rms_norm(out.host, {x.host, branch.host, 0.5f}, {gain.host, 1e-5f});
    gpu().add_rms_norm(out.device, {x.device, branch.device, 0.5f}, {gain.device, 1e-5f});
    EXPECT_LT(error(out.host, out.device), tolerance()) << dim;
    EXPECT_LT(error(x.host, x.device), tolerance()) << dim;
    ref().rms_norm(x.host, x.host, {}, 1e-5f);
    gpu().rms_norm(x.device, x.device, {}, 1e-5f);
    EXPECT_LT(error(x.host, x.device), tolerance()) << dim;
  }
}

TEST_P(TokenTest, NormOfHeadsInPlace) {
  for (int64_t dim : {16, 64, 128, 192}) {
    Both x = random(5, 6 * dim + 32);
    const Both gain = vector(dim);
    const TensorView host = x.host.columns_as_heads(8, 6, dim),
                     device_view = x.device.columns_as_heads(8, 6, dim);
    ref().rms_norm(host, host, gain.host, 1e-6f);
    gpu().rms_norm(device_view, device_view, gain.device, 1e-6f);
    EXPECT_LT(error(x.host, x.device), tolerance()) << dim;
  }
}

TEST_P(TokenTest, AddAndNormInOne) {
  for (int64_t dim : kDims) {
    Both sum = random(9, dim);
    const Both b = random(9, dim), gain = vector(dim);
    Both out = zeros(9, dim);
    ref().add_rms_norm(out.host, {sum.host, b.host, 0.7f}, {gain.host, 1e-5f});
    gpu().add_rms_norm(out.device, {sum.device, b.device, 0.7f}, {gain.device, 1e-5f});
    EXPECT_LT(error(out.host, out.device), tolerance()) << dim;
    EXPECT_LT(error(sum.host, sum.device), tolerance()) << dim;
  }
}

TEST_P(TokenTest, AddsABranchThatIsNormedFirst) {
  for (int64_t dim : kDims) {
    for (int64_t n : kCounts) {
      SCOPED_TRACE(::testing::Message() << "n " << n << " dim " << dim);
      Both sum = random(n, dim), branch = random(n, dim), again = random(n, dim);
      const Both branch_gain = vector(dim), gain = vector(dim);
      Both out = zeros(n, dim);
      ref().add_normed_rms_norm(out.host, {sum.host, branch.host, 0.7f}, {branch_gain.host, 1e-5f},
                                {gain.host, 1e-6f});
      gpu().add_normed_rms_norm(out.device, {sum.device, branch.device, 0.7f}, {branch_gain.device, 1e-5f},
                                {gain.device, 1e-6f});
      EXPECT_LT(error(out.host, out.device), tolerance());
      EXPECT_LT(error(sum.host, sum.device), tolerance());
      ref().add_normed({sum.host, again.host}, {{}, 1e-5f});
      gpu().add_normed({sum.device, again.device}, {{}, 1e-5f});
      EXPECT_LT(error(sum.host, sum.device), tolerance());
      Both third = random(n, dim), last = random(n, dim);
      ref().add_normed({sum.host, third.host, 1.0f, 0.6f}, {branch_gain.host, 1e-5f});
      gpu().add_normed({sum.device, third.device, 1.0f, 0.6f}, {branch_gain.device, 1e-5f});
      EXPECT_LT(error(sum.host, sum.device), tolerance());
      ref().add_normed_rms_norm(out.host, {sum.host, last.host, 0.7f, 1.7f}, {{}, 1e-5f}, {gain.host, 1e-6f});
      gpu().add_normed_rms_norm(out.device, {sum.device, last.device, 0.7f, 1.7f}, {{}, 1e-5f},
                                {gain.device, 1e-6f});
      EXPECT_LT(error(out.host, out.device), tolerance());
      EXPECT_LT(error(sum.host, sum.device), tolerance());
    }
  }
}

TEST_P(TokenTest, ElementWise) {
  for (int64_t dim : {5, 128, 4096}) {
    const Both a = random(6, dim, 3.0f), b = random(6, dim), row = random(1, dim);
    Both out = zeros(6, dim);
    ref().add(out.host, a.host, b.host, -0.5f);
    gpu().add(out.device, a.device, b.device, -0.5f);
    EXPECT_LT(error(out.host, out.device), tolerance());
    ref().add(out.host, a.host, row.host, 2.0f);
    gpu().add(out.device, a.device, row.device, 2.0f);
    EXPECT_LT(error(out.host, out.device), tolerance());
    ref().copy(out.host, a.host);
    gpu().copy(out.device, a.device);
    EXPECT_EQ(error(out.host, out.device), 0.0);
    ref().softcap(out.host, 2.0f);
    gpu().softcap(out.device, 2.0f);
    EXPECT_LT(error(out.host, out.device), tolerance());
    ref().scale(out.host, 1.5f);
    gpu().scale(out.device, 1.5f);
    EXPECT_LT(error(out.host, out.device), tolerance());
    ref().clamp(out.host, 1.0f);
    gpu().clamp(out.device, 1.0f);
    EXPECT_LT(error(out.host, out.device), tolerance());
    const Both gate = random(6, 1);
    ref().gate_rows(out.host, gate.host);
    gpu().gate_rows(out.device, gate.device);
    ref().gate_rows(out.host, gate.host, Activation::Softplus);
    gpu().gate_rows(out.device, gate.device, Activation::Softplus);
    EXPECT_LT(error(out.host, out.device), tolerance());
  }
}

TEST_P(TokenTest, Activations) {
  for (Activation activation : {Activation::Silu, Activation::Gelu, Activation::GeluTanh, Activation::Relu,
                                Activation::Relu2, Activation::SwigluOai, Activation::Elu,
                                Activation::Sigmoid, Activation::Softplus, Activation::Identity}) {
    for (int64_t inner : {10, 64, 14336}) {
      const Both x = random(4, 2 * inner, 2.0f);
      Both out = zeros(4, inner);
      ref().gated(out.host, x.host, activation);
      gpu().gated(out.device, x.device, activation);
      EXPECT_LT(error(out.host, out.device), tolerance())
          << static_cast<int>(activation) << " inner " << inner;
      if (activation == Activation::SwigluOai) continue;
      ref().activate(out.host, x.host.columns(inner, 2 * inner), activation);
      gpu().activate(out.device, x.device.columns(inner, 2 * inner), activation);
      EXPECT_LT(error(out.host, out.device), tolerance())
          << static_cast<int>(activation) << " inner " << inner;
    }
  }
}

TEST_P(TokenTest, RowsAndLargest) {
  for (int64_t dim : {9, 512}) {
    const Both x = random(20, dim);
    Both out = zeros(4, dim);
    const std::vector<int32_t> rows{19, 0, 7, 7};
    ref().gather_rows(out.host, x.host, rows);
    gpu().gather_rows(out.device, x.device, rows);
    EXPECT_EQ(error(out.host, out.device), 0.0);
    kernels::Memory ids = gpu().allocate(DType::I32, {20});
    gpu().argmax(ids.view, x.device);
    HostTensor got = HostTensor::make(DType::I32, {20});
    gpu().download(got.view, ids.view);
    for (int64_t i = 0; i < 20; ++i) {
      const float* row = x.host.at<float>(i);
      EXPECT_EQ(got.view.at<int32_t>()[i], std::max_element(row, row + dim) - row);
    }
  }
}

// Wide logits are rounded before a token is sampled from them.
TEST_P(TokenTest, SamplesFromEitherType) {
  const Both logits = random(3, 1000, 4.0f);
  const std::vector<kernels::SampleArgs> rows(3);
  gpu().sample(logits.device, rows, {}, {});
  const std::span<const kernels::SampledToken> sampled = gpu().wait_sampled(gpu().send_sampled(rows.size()));
  for (int64_t i = 0; i < 3; ++i) {
    std::vector<float> row(logits.host.at<float>(i), logits.host.at<float>(i) + 1000);
    for (float& value : row) value = bf16_to_f32(f32_to_bf16(value));
    EXPECT_EQ(sampled[static_cast<size_t>(i)].token, std::max_element(row.begin(), row.end()) - row.begin());
  }
}

// A kernel that reads an array staged right before it sees the new one, however often.
TEST_P(TokenTest, FreshArraysAreSeen) {
  const Both x = random(1000, 64);
  Both out = zeros(1000, 64);
  for (int i = 0; i < 100; ++i) {
    std::vector<int32_t> rows(1000);
    for (int32_t& row : rows) row = below(1000);
    ref().gather_rows(out.host, x.host, rows);
    gpu().scale(out.device, 2.0f);
    gpu().gather_rows(out.device, x.device, rows);
    ASSERT_EQ(error(out.host, out.device), 0.0) << i;
  }
}

TEST_P(TokenTest, EmbedEveryType) {
  table_ = true;
  for (const DTypeInfo& type : kDTypes) {
    if (type.type == DType::I8 || type.type == DType::I32 || type.type == DType::U8 ||
        is_file_only(type.type))
      continue;
    SCOPED_TRACE(std::string(type.name));
    const BothWeight table = weight({type.type}, 50, 512, false);
    const std::vector<int32_t> ids{3, 49, 0, 3, 17};
    Both out = zeros(5, 512);
    ref().embed(out.host, table.host, ids);
    gpu().embed(out.device, table.device, ids);
    EXPECT_LT(error(out.host, out.device), tolerance());
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, TokenTest, kEachActivation, name_of);

}  // namespace
}  // namespace sluice::cuda_test
