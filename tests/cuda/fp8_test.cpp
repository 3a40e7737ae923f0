// Weights that become fp8 when they are uploaded, against the reference with the same rounding done here.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/blocks.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

// Magnitude of an e4m3 code.
float magnitude(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                       : std::ldexp(8.0f + static_cast<float>(mantissa), exponent - 10);
}

// To the nearest e4m3 value, ties to even codes.
float rounded_e4m3(float value) {
  static const std::vector<float> values = [] {
    std::vector<float> made;
    for (int code = 0; code < 0x7f; ++code) made.push_back(magnitude(code));
    return made;
  }();
  const float size = std::min(std::fabs(value), 448.0f);
  const auto above =
      static_cast<size_t>(std::lower_bound(values.begin(), values.end(), size) - values.begin());
  if (above == 0) return std::copysign(values[0], value);
  const float up = values[above] - size, down = size - values[above - 1];
  const bool upwards = up < down || (up == down && above % 2 == 0);
  return std::copysign(values[upwards ? above : above - 1], value);
}

void round_row(float* row, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(row[i]));
  if (largest == 0.0f) return;
  const float scale = largest / 448.0f, factor = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) row[i] = rounded_e4m3(row[i] * factor) * scale;
}

class Fp8Test : public DeviceTest {
 protected:
  // A second back-end on the same device, with a stream of its own.
  static kernels::CudaBackend& fp8() {
    static const std::unique_ptr<kernels::CudaBackend> made = [] {
      kernels::CudaOptions wanted = options();
      wanted.weights = kernels::WeightStorage::Fp8;
      wanted.search = false;
      auto result = kernels::make_cuda_backend(wanted);
      return result.ok() ? std::move(*result) : nullptr;
    }();
    return *made;
  }

  struct Weights {
    BothWeight original;
    HostTensor memory;
    kernels::Weight host;    // rounded, f32
    kernels::Weight device;  // of fp8()
  };
  Weights weights(const std::vector<DType>& types, int64_t rows_per_part, int64_t cols, bool bias) {
    Weights w{weight(types, rows_per_part, cols, bias), {}, {}, {}};
    const kernels::Weight& source = w.original.host;
    w.memory = HostTensor::make(DType::F32, {source.rows, cols});
    float* row = w.memory.view.at<float>();
    for (const TensorView& part : source.parts) {
      for (int64_t r = 0; r < part.dim(0); ++r, row += cols) {
        const auto* bytes = static_cast<const std::byte*>(part.data) + r * row_bytes(part.dtype, cols);
        dequantize_row(part.dtype, bytes, row, cols);
        round_row(row, cols);
      }
    }
    w.host = source;
    w.host.parts = {w.memory.view};
    w.device = fp8().prepare(source);
    return w;
  }
};

TEST_F(Fp8Test, GemmOfFewAndManyTokens) {
  for (auto [rows, cols, bias] :
       {std::tuple<int64_t, int64_t, bool>{1024, 128, true}, {1040, 640, false}, {4096, 1408, false}}) {
    const Weights w = weights({rows == 1040 ? DType::F16 : DType::BF16}, rows, cols, bias);
    for (int64_t n : {1, 2, 8, 9, 16, 31, 32, 33, 64, 65, 128, 200, 256, 300}) {
      Both x = random(n, cols);
      Both out = zeros(n, rows);
      gpu().synchronize();
      fp8().matmul(out.device, x.device, w.device);
      fp8().synchronize();
      if (n > 32 && uses_hopper())
        for (int64_t i = 0; i < n; ++i) round_row(x.host.at<float>() + i * cols, cols);
      ref().matmul(out.host, x.host, w.host);
      EXPECT_LT(error(out.host, out.device), kTolerance) << "n " << n << " rows " << rows << " cols " << cols;
    }
  }
}

// Rows that a warp reads in whole rounds and in parts of one; rows of the ring; a table stays as it is.
TEST_F(Fp8Test, GemvOfOneToken) {
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{1030, 4096}, {1030, 640}, {5001, 256}, {70000, 128}}) {
    const Weights w = weights({DType::BF16}, rows, cols, true);
    Both x = random(1, cols);
    Both out = zeros(1, rows);
    gpu().synchronize();
    fp8().matmul(out.device, x.device, w.device);
    fp8().synchronize();
    ref().matmul(out.host, x.host, w.host);
    EXPECT_LT(error(out.host, out.device), kTolerance) << "rows " << rows << " cols " << cols;
  }
}

TEST_F(Fp8Test, TablesStayAsTheyAre) {
  const BothWeight original = weight({DType::BF16}, 1024, 256, false);
  kernels::Weight table = original.host;
  table.table = true;
  const kernels::Weight stored = fp8().prepare(table);
  Both rows = zeros(3, 256);
  const std::vector<int32_t> ids{3, 1023, 0};
  gpu().synchronize();
  fp8().embed(rows.device, stored, ids);
  fp8().synchronize();
  ref().embed(rows.host, original.host, ids);
  EXPECT_LT(error(rows.host, rows.device), 1e-6);
}

TEST_F(Fp8Test, GatedGemms) {
  const Weights w = weights({DType::BF16, DType::F32}, 712, 256, false);
  for (int64_t n : {1, 7, 16, 32, 40, 100, 200, 300}) {
    Both x = random(n, 256, 0.1f);
    Both wide = zeros(n, 2 * 712), out = zeros(n, 712);
    gpu().synchronize();
    fp8().matmul_gated(out.device, wide.device, x.device, w.device, kernels::Activation::Silu);
    fp8().synchronize();
    if (n > 32 && uses_hopper())
      for (int64_t i = 0; i < n; ++i) round_row(x.host.at<float>() + i * 256, 256);
    ref().matmul_gated(out.host, wide.host, x.host, w.host, kernels::Activation::Silu);
    EXPECT_LT(error(out.host, out.device), kTolerance) << n;
  }
}

// The tokens of the second product are rounded straight from the gate, to the same bits as by themselves.
TEST_F(Fp8Test, ProductBehindAGate) {
  constexpr int64_t n = 1100;
  const Weights up = weights({DType::BF16}, 2 * 1040, 256, false),
                down = weights({DType::BF16}, 1024, 1040, false);
  const Both x = random(n, 256);
  Both wide = zeros(n, 2 * 1040), active = zeros(n, 1040), out = zeros(n, 1024), apart = zeros(n, 1024);
  gpu().synchronize();
  fp8().matmul_gated(active.device, wide.device, x.device, up.device, kernels::Activation::Silu);
  fp8().matmul(out.device, active.device, down.device);
  fp8().matmul_gated(active.device, wide.device, x.device, up.device, kernels::Activation::Silu);
  fp8().synchronize();
  fp8().matmul(apart.device, active.device, down.device);
  fp8().synchronize();
  fp8().download(out.host, out.device);
  fp8().download(apart.host, apart.device);
  double sum = 0;
  for (int64_t i = 0; i < n * 1024; ++i) {
    ASSERT_EQ(out.host.at<float>()[i], apart.host.at<float>()[i]) << i;
    sum += std::abs(out.host.at<float>()[i]);
  }
  EXPECT_GT(sum, 0.0);
}

// The tokens of a GEMM are rounded by the norm in front of it, to the same bits as by themselves.
TEST_F(Fp8Test, ProductBehindANorm) {
  for (const auto& [n, cols] :
       {std::pair<int64_t, int64_t>{33, 512}, {200, 4096}, {300, 1040}, {1100, 1040}, {1100, 4096}}) {
    const Weights w = weights({DType::BF16}, 1024, cols, false);
    const Both x = random(n, cols), branch = random(n, cols), gain = vector(cols);
    Both sum = zeros(n, cols), normed = zeros(n, cols), out = zeros(n, 1024), apart = zeros(n, 1024);
    const auto norm = [&] {
      fp8().copy(sum.device, x.device);
      fp8().add_rms_norm(normed.device, {sum.device, branch.device}, {gain.device, 1e-5f});
    };
    gpu().synchronize();
    norm();
    fp8().matmul(out.device, normed.device, w.device);
    norm();
    fp8().synchronize();
    fp8().matmul(apart.device, normed.device, w.device);
    fp8().synchronize();
    fp8().download(out.host, out.device);
    fp8().download(apart.host, apart.device);
    double sum_of_all = 0;
    for (int64_t i = 0; i < n * 1024; ++i) {
      ASSERT_EQ(out.host.at<float>()[i], apart.host.at<float>()[i]) << i;
      sum_of_all += std::abs(out.host.at<float>()[i]);
    }
    EXPECT_GT(sum_of_all, 0.0);
  }
}

// One matrix per head, and rows of the table: kernels for any type read the rows as they lie.
TEST_F(Fp8Test, RowsOfAnyKernel) {
  const Weights a = weights({DType::BF16}, 1024, 256, false), b = weights({DType::BF16}, 1024, 256, false);
  const std::vector<kernels::Weight> host{a.host, b.host}, on_device{a.device, b.device};
  const Both x = random(5, 2 * 256);
  Both out = zeros(5, 2 * 1024), rows = zeros(3, 256);
  gpu().synchronize();
  fp8().matmul_heads(heads_of(out.device, 2), heads_of(x.device, 2), on_device);
  const std::vector<int32_t> ids{3, 1023, 0};
  fp8().embed(rows.device, a.device, ids);
  fp8().synchronize();
  ref().matmul_heads(heads_of(out.host, 2), heads_of(x.host, 2), host);
  ref().embed(rows.host, a.host, ids);
  EXPECT_LT(error(out.host, out.device), kTolerance);
  EXPECT_LT(error(rows.host, rows.device), kTolerance);
}

}  // namespace
}  // namespace sluice::cuda_test
