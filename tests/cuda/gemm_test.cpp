// GEMMs of the CUDA back-end against the reference: every weight type, few and many tokens, odd shapes.
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

class GemmTest : public EachActivation {
 protected:
  void compare(const BothWeight& w, int64_t n) {
    SCOPED_TRACE(::testing::Message() << "n " << n << " rows " << w.host.rows << " cols " << w.host.cols);
    const Both x = random(n, w.host.cols);
    Both out = zeros(n, w.host.rows);
    ref().matmul(out.host, x.host, w.host);
    gpu().matmul(out.device, x.device, w.device);
    EXPECT_LT(error(out.host, out.device), tolerance());
  }
};

TEST_P(GemmTest, EveryTypeFewAndManyTokens) {
  for (const DTypeInfo& type : kDTypes) {
    if (type.type == DType::I8 || type.type == DType::I32 || type.type == DType::U8 ||
        is_file_only(type.type))
      continue;
    SCOPED_TRACE(std::string(type.name));
    const BothWeight w = weight({type.type}, 104, 512, true);
    for (int64_t n : {1, 2, 5, 8, 9, 17, 32, 33, 70, 200}) compare(w, n);
  }
}

TEST_P(GemmTest, OddShapes) {
  for (int64_t rows : {1, 37, 130}) {
    for (int64_t cols : {1, 51, 72, 1000}) {
      const BothWeight w = weight({DType::BF16}, rows, cols, true);
      for (int64_t n : {1, 3, 40}) compare(w, n);
    }
  }
}

TEST_P(GemmTest, LargerShapes) {
  for (auto [rows, cols] : {std::pair<int64_t, int64_t>{6144, 1024}, {1000, 4096}, {4096, 6144}}) {
    const BothWeight w = weight({DType::BF16}, rows, cols, false);
    for (int64_t n : {1, 7, 16, 31, 64}) compare(w, n);
  }
}

TEST_P(GemmTest, StackedPartsOfDifferentTypes) {
  const BothWeight w = weight({DType::F16, DType::F32, DType::Q4_K, DType::Q6_K, DType::BF16}, 64, 256, true);
  for (int64_t n : {1, 4, 20, 100, 200}) compare(w, n);
}

TEST_P(GemmTest, StridedViews) {
  const BothWeight w = weight({DType::BF16}, 96, 128, true);
  for (int64_t n : {1, 6, 40}) {
    const Both x = random(n, 128 + 24);
    Both out = zeros(n, 96 + 40);
    ref().matmul(out.host.columns(8, 104), x.host.columns(16, 144), w.host);
    gpu().matmul(out.device.columns(8, 104), x.device.columns(16, 144), w.device);
    EXPECT_LT(error(out.host, out.device), tolerance()) << n;
  }
}

TEST_P(GemmTest, GatedInOne) {
  for (DType type : {DType::BF16, DType::Q4_0}) {
    for (auto [inner, cols] : {std::pair<int64_t, int64_t>{40, 64}, {1000, 320}, {512, 2048}, {9, 51}}) {
      if (is_block(type) && cols % 32 != 0) continue;
      const BothWeight w = weight({type, type}, inner, cols, true);
      for (int64_t n : {1, 2, 8, 13, 32, 40}) {
        const Both x = random(n, cols, 0.1f);
        Both wide = zeros(n, 2 * inner), out = zeros(n, inner);
        ref().matmul_gated(out.host, wide.host, x.host, w.host, kernels::Activation::Silu);
        gpu().matmul_gated(out.device, wide.device, x.device, w.device, kernels::Activation::Silu);
        EXPECT_LT(error(out.host, out.device), tolerance()) << name(type) << " n " << n << " inner " << inner;
      }
    }
  }
}

// Tokens enough for the warpgroup instructions; borders inside tiles on every side.
TEST_P(GemmTest, GatedOfManyTokens) {
  for (auto [inner, cols] : {std::pair<int64_t, int64_t>{64, 64}, {200, 328}, {1024, 136}}) {
    const BothWeight w = weight({DType::BF16, DType::BF16}, inner, cols, false);
    for (int64_t n : {33, 80, 100, 128, 129, 300, 1400}) {
      for (auto activation : {kernels::Activation::Silu, kernels::Activation::GeluTanh}) {
        const Both x = random(n, cols, 0.1f);
        Both wide = zeros(n, 2 * inner), out = zeros(n, inner);
        ref().matmul_gated(out.host, wide.host, x.host, w.host, activation);
        gpu().matmul_gated(out.device, wide.device, x.device, w.device, activation);
        EXPECT_LT(error(out.host, out.device), tolerance()) << "n " << n << " inner " << inner;
      }
    }
  }
}

// Rows for every width of tile on a device of 132 multiprocessors.
TEST_P(GemmTest, GatedOfManyRows) {
  if (GetParam() == DType::F32) GTEST_SKIP() << "for bf16 activations";
  for (int64_t inner : {10400, 12504, 14336, 16800}) {
    const BothWeight w = weight({DType::BF16, DType::BF16}, inner, 72, false);
    for (int64_t n : {17, 100, 130, 1100}) {  // the last: several tiles for every block
      const Both x = random(n, 72, 0.1f);
      Both wide = zeros(n, 2 * inner), out = zeros(n, inner);
      ref().matmul_gated(out.host, wide.host, x.host, w.host, kernels::Activation::Silu);
      gpu().matmul_gated(out.device, wide.device, x.device, w.device, kernels::Activation::Silu);
      EXPECT_LT(error(out.host, out.device), kTolerance) << "n " << n << " inner " << inner;
    }
  }
}

// Weights that go up in many pieces, behind each other: every row is where it belongs.
TEST_P(GemmTest, OfLargeMatrices) {
  std::vector<BothWeight> all;
  for (int i = 0; i < 3; ++i) all.push_back(weight({DType::BF16}, 20000 + i, 1600, true));
  const Both x = random(1, 1600);
  for (const BothWeight& w : all) {
    Both out = zeros(1, w.host.rows);
    ref().matmul(out.host, x.host, w.host);
    gpu().matmul(out.device, x.device, w.device);
    EXPECT_LT(error(out.host, out.device), tolerance()) << w.host.rows;
  }
}

// Rows that become bf16 in more than one panel, where activations are f32.
TEST_P(GemmTest, OfLargePackedMatrices) {
  compare(weight({DType::Q4_0}, 17000, 2048, true), 192);
}

// Few tokens take a pass over the GEMM, many have it added where it is made.
TEST_P(GemmTest, AddedToWhatIsThereAndNormed) {
  for (int64_t n : {1, 7, 600}) {
    const BothWeight w = weight({DType::BF16}, 512, 256, false);
    const Both x = random(n, 256), gain = vector(512);
    Both sum = random(n, 512), gemm = zeros(n, 512), out = zeros(n, 512);
    ref().matmul_add_rms_norm(out.host, {sum.host, gemm.host}, {x.host, &w.host}, {gain.host, 1e-5f});
    gpu().matmul_add_rms_norm(out.device, {sum.device, gemm.device}, {x.device, &w.device},
                              {gain.device, 1e-5f});
    EXPECT_LT(error(sum.host, sum.device), tolerance()) << n;
    EXPECT_LT(error(out.host, out.device), tolerance()) << n;
  }
}

// The same GEMM again and again has the same bits; the weights come from the L2, faster than they are used.
TEST_P(GemmTest, RepeatsBitForBit) {
  for (int64_t rows : {1000, 4096}) {
    const BothWeight w = weight({DType::BF16}, rows, 4096, false);
    for (int64_t n : {1, 7, 16, 31, 64}) {
      const Both x = random(n, 4096);
      const kernels::Memory out = gpu().allocate(activations_, {n, rows}),
                            half = gpu().allocate(activations_, {n, rows / 2});
      HostTensor got = HostTensor::make(DType::F32, {n * rows}),
                 gated = HostTensor::make(DType::F32, {n * rows / 2});
      std::vector<float> first, first_gated;
      for (int i = 0; i < 60; ++i) {
        gpu().matmul(out.view, x.device, w.device);
        gpu().download(got.view, out.view);
        gpu().matmul_gated(half.view, out.view, x.device, w.device, kernels::Activation::Silu);
        gpu().download(gated.view, half.view);
        const std::vector<float> values(got.view.at<float>(), got.view.at<float>() + n * rows);
        const std::vector<float> halves(gated.view.at<float>(), gated.view.at<float>() + n * rows / 2);
        if (first.empty()) first = values, first_gated = halves;
        ASSERT_TRUE(values == first && halves == first_gated)
            << "rows " << rows << " n " << n << " run " << i;
      }
    }
  }
}

// Columns in an order of their own: of all parts, of some, and of a gate; plain where they are listed, as experts are.
TEST_P(GemmTest, ColumnsInAnotherOrder) {
  constexpr int64_t kCols = 512;
  const auto order = [](int step) {
    std::vector<int32_t> columns(kCols);
    for (int k = 0; k < kCols; ++k) columns[static_cast<size_t>(k)] = (step * k + 3) % kCols;
    return std::make_shared<const std::vector<int32_t>>(columns);
  };
  const kernels::ColumnOrder first = order(5), second = order(77);
  for (const bool listed : {false, true}) {
    listed_ = listed;
    for (const auto& orders : {std::vector{first, first, first}, {first, nullptr, second}}) {
      if (listed && orders[1] == nullptr && activations_ == DType::F32) continue;  // kept in bf16
      SCOPED_TRACE(::testing::Message() << "listed " << listed);
      orders_ = orders;
      const BothWeight w = weight({DType::Q4_0, DType::Q4_Z, DType::Q4_Z}, 72, kCols, true);
      for (const int64_t n : {1, 5, 20, 70, 300}) compare(w, n);
      orders_ = {orders[0], orders[2]};
      const BothWeight gate = weight({DType::Q4_Z, DType::Q4_Z}, 96, kCols, false);
      orders_ = {orders[0]};
      const BothWeight down = weight({DType::Q4_Z}, 128, kCols, false);
      for (const int64_t n : {1, 20, 70, 600}) {
        const Both x = random(n, kCols, 0.1f), gain = vector(128);
        Both wide = zeros(n, 192), out = zeros(n, 96);
        ref().matmul_gated(out.host, wide.host, x.host, gate.host, kernels::Activation::Silu);
        gpu().matmul_gated(out.device, wide.device, x.device, gate.device, kernels::Activation::Silu);
        EXPECT_LT(error(out.host, out.device), tolerance()) << n;
        Both sum = random(n, 128), gemm = zeros(n, 128), normed = zeros(n, 128);
        ref().matmul_add_rms_norm(normed.host, {sum.host, gemm.host}, {x.host, &down.host},
                                  {gain.host, 1e-5f});
        gpu().matmul_add_rms_norm(normed.device, {sum.device, gemm.device}, {x.device, &down.device},
                                  {gain.device, 1e-5f});
        EXPECT_LT(error(normed.host, normed.device), tolerance()) << n;
      }
    }
  }
  orders_.clear();
  listed_ = false;
}

TEST_P(GemmTest, OneMatrixPerHead) {
  listed_ = true;
  for (DType type : {DType::BF16, DType::Q8_0}) {
    std::vector<BothWeight> all;
    std::vector<kernels::Weight> host, device_weights;
    for (int h = 0; h < 6; ++h) {
      all.push_back(weight({type}, 80, 64, false));
      host.push_back(all.back().host);
      device_weights.push_back(all.back().device);
    }
    for (int64_t n : {1, 5, 50}) {
      const Both x = random(n, 6 * 64);
      Both out = zeros(n, 6 * 80);
      ref().matmul_heads(heads_of(out.host, 6), heads_of(x.host, 6), host);
      gpu().matmul_heads(heads_of(out.device, 6), heads_of(x.device, 6), device_weights);
      EXPECT_LT(error(out.host, out.device), tolerance()) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, GemmTest, kEachActivation, name_of);

}  // namespace
}  // namespace sluice::cuda_test
