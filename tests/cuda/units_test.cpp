// GEMMs with quantized matrices in units against the reference: every type that has units, every way by the number of
// tokens, borders inside units and tiles.
#include "tests/cuda/harness.h"

#include "kernels/cuda/gemm/quantized/units.h"

namespace sluice::cuda_test {
namespace {

constexpr int64_t kTokens[] = {1, 2, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 300, 513};

std::vector<DType> types_in_units() {
  std::vector<DType> types;
  for (const DTypeInfo& type : kDTypes)
    if (kernels::cuda::units_of(type.type) != kernels::cuda::Units::None) types.push_back(type.type);
  return types;
}

class UnitsTest : public DeviceTest {
 protected:
  void compare(const BothWeight& w, int64_t n) {
    SCOPED_TRACE(::testing::Message() << "n " << n << " rows " << w.host.rows << " cols " << w.host.cols);
    const Both x = random(n, w.host.cols);
    Both out = zeros(n, w.host.rows);
    ref().matmul(out.host, x.host, w.host);
    gpu().matmul(out.device, x.device, w.device);
    EXPECT_LT(error(out.host, out.device), kTolerance);
  }
  void compare_gated(const BothWeight& w, int64_t n, kernels::Activation activation) {
    SCOPED_TRACE(::testing::Message() << "n " << n << " rows " << w.host.rows << " cols " << w.host.cols);
    const Both x = random(n, w.host.cols, 0.1f);
    Both wide = zeros(n, w.host.rows), out = zeros(n, w.host.rows / 2);
    ref().matmul_gated(out.host, wide.host, x.host, w.host, activation);
    gpu().matmul_gated(out.device, wide.device, x.device, w.device, activation);
    EXPECT_LT(error(out.host, out.device), kTolerance);
  }
};

TEST_F(UnitsTest, EveryTypeAnyNumberOfTokens) {
  for (const DType type : types_in_units()) {
    SCOPED_TRACE(std::string(name(type)));
    const BothWeight w = weight({type}, 200, 768, true);
    for (const int64_t n : kTokens) compare(w, n);
  }
}

TEST_F(UnitsTest, EveryTypeGated) {
  for (const DType type : types_in_units()) {
    SCOPED_TRACE(std::string(name(type)));
    const BothWeight w = weight({type, type}, 208, 512, true);
    for (const int64_t n : kTokens) compare_gated(w, n, kernels::Activation::Silu);
    compare_gated(w, 7, kernels::Activation::GeluTanh);
    compare_gated(w, 70, kernels::Activation::GeluTanh);
  }
}

// Scales of 64 columns and more lie in units once; of 96 they do not.
TEST_F(UnitsTest, ZeroPointsOfGroups) {
  for (const int64_t group : {64, 96, 128}) {
    SCOPED_TRACE(group);
    group_ = group;
    const BothWeight w = weight({DType::Q4_Z}, 200, 768, true),
                     gated = weight({DType::Q4_Z, DType::Q4_Z}, 208, 768, true);
    for (const int64_t n : kTokens) {
      compare(w, n);
      compare_gated(gated, n, kernels::Activation::Silu);
    }
  }
}

// Gates that end within a row of units take a pass over the whole GEMM.
TEST_F(UnitsTest, GatedOfOddRows) {
  const BothWeight w = weight({DType::Q4_K, DType::Q4_K}, 40, 256, true);
  for (const int64_t n : {1, 20, 600}) compare_gated(w, n, kernels::Activation::Silu);
}

// More tiles than blocks; x of few tokens that stays in shared memory, and that does not.
TEST_F(UnitsTest, ManyRowsAndColumns) {
  for (const DType type : {DType::Q4_K, DType::Q8_0, DType::Q6_K}) {
    SCOPED_TRACE(std::string(name(type)));
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{9000, 512}, {500, 8448}, {66000, 256}}) {
      const BothWeight w = weight({type}, rows, cols, false);
      for (const int64_t n : {1, 4, 8, 13, 30, 60, 100}) compare(w, n);
    }
    const BothWeight gated = weight({type, type}, 4400, 512, false);
    for (const int64_t n : {1, 8, 13, 30, 60, 100}) compare_gated(gated, n, kernels::Activation::Silu);
  }
}

TEST_F(UnitsTest, PartsThatBeginWithinUnits) {
  const BothWeight w =
      weight({DType::Q4_K, DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::Q8_0}, 72, 256, true);
  for (const int64_t n : {1, 9, 40, 600}) compare(w, n);
}

TEST_F(UnitsTest, StridedViews) {
  const BothWeight w = weight({DType::Q4_K}, 96, 256, true);
  for (const int64_t n : {1, 6, 40, 100}) {
    const Both x = random(n, 256 + 24);
    Both out = zeros(n, 96 + 40);
    ref().matmul(out.host.columns(8, 104), x.host.columns(16, 272), w.host);
    gpu().matmul(out.device.columns(8, 104), x.device.columns(16, 272), w.device);
    EXPECT_LT(error(out.host, out.device), kTolerance) << n;
  }
}

// Tokens that do not begin at a multiple of 16 bytes.
TEST_F(UnitsTest, UnalignedViews) {
  const BothWeight w = weight({DType::Q4_0}, 96, 256, true);
  for (const int64_t n : {1, 40}) {
    const Both x = random(n, 256 + 3);
    Both out = zeros(n, 96);
    ref().matmul(out.host, x.host.columns(3, 259), w.host);
    gpu().matmul(out.device, x.device.columns(3, 259), w.device);
    EXPECT_LT(error(out.host, out.device), kTolerance) << n;
  }
}

TEST_F(UnitsTest, AddedToWhatIsThereAndNormed) {
  for (const int64_t n : {1, 7, 8, 200, 600}) {
    const BothWeight w = weight({DType::Q4_K}, 5000, 256, false);
    const Both x = random(n, 256), gain = vector(5000);
    Both sum = random(n, 5000), gemm = zeros(n, 5000), out = zeros(n, 5000);
    ref().matmul_add_rms_norm(out.host, {sum.host, gemm.host}, {x.host, &w.host}, {gain.host, 1e-5f});
    gpu().matmul_add_rms_norm(out.device, {sum.device, gemm.device}, {x.device, &w.device},
                              {gain.device, 1e-5f});
    EXPECT_LT(error(sum.host, sum.device), kTolerance) << n;
    EXPECT_LT(error(out.host, out.device), kTolerance) << n;
  }
}

// The same GEMM again and again has the same bits; the weights come from the L2, faster than they are used.
TEST_F(UnitsTest, RepeatsBitForBit) {
  for (const DType type : {DType::Q4_K, DType::Q8_0}) {
    const BothWeight w = weight({type, type}, 2048, 4096, false);
    for (const int64_t n : {1, 7, 16, 31, 64, 128}) {
      const Both x = random(n, 4096);
      const kernels::Memory out = gpu().allocate(DType::BF16, {n, 4096}),
                            half = gpu().allocate(DType::BF16, {n, 2048});
      HostTensor got = HostTensor::make(DType::F32, {n * 4096}),
                 gated = HostTensor::make(DType::F32, {n * 2048});
      std::vector<float> first, first_gated;
      for (int i = 0; i < 40; ++i) {
        gpu().matmul(out.view, x.device, w.device);
        gpu().download(got.view, out.view);
        gpu().matmul_gated(half.view, out.view, x.device, w.device, kernels::Activation::Silu);
        gpu().download(gated.view, half.view);
        const std::vector<float> values(got.view.at<float>(), got.view.at<float>() + n * 4096);
        const std::vector<float> halves(gated.view.at<float>(), gated.view.at<float>() + n * 2048);
        if (first.empty()) first = values, first_gated = halves;
        ASSERT_TRUE(values == first && halves == first_gated) << name(type) << " n " << n << " run " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda_test
