// Norms that the GEMM behind them takes over, of one token, or in part, of several behind a sum, within a step, against the
// reference's plain ones.
#include <functional>

#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

class DeferredNormTest : public DeviceTest {
 protected:
  // Described, run, recorded and replayed.
  void run(const std::function<void()>& body) {
    for (int i = 0; i < 3; ++i) gpu().run_step(body);
    gpu().synchronize();
  }
};

TEST_F(DeferredNormTest, IsDoneByTheGemmAndStored) {
  // Widths that a block norms at once, or not; rows for several warps each, for one, and too many for the GEMM to norm.
  for (const int64_t cols : {512, 1024, 1536, 2048, 3072, 4096, 5120})
    for (const int64_t rows : {100, 1024, 3000, 20000}) {
      const BothWeight w = weight({DType::BF16}, rows, cols, false);
      const Both x = random(1, cols), gain = vector(cols);
      Both normed = zeros(1, cols), out = zeros(1, rows), gated = zeros(1, rows / 2), wide = zeros(1, rows);
      ref().rms_norm(normed.host, x.host, gain.host, 1e-5f);
      ref().matmul(out.host, normed.host, w.host);
      ref().matmul_gated(gated.host, wide.host, normed.host, w.host, kernels::Activation::Silu);
      run([&] {
        gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
        gpu().matmul(out.device, normed.device, w.device);
      });
      EXPECT_LT(error(normed.host, normed.device), kTolerance) << rows << " x " << cols;
      EXPECT_LT(error(out.host, out.device), kTolerance) << rows << " x " << cols;
      run([&] {
        gpu().rms_norm(normed.device, x.device, TensorView{}, 1e-5f);
        gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
        gpu().matmul_gated(gated.device, wide.device, normed.device, w.device, kernels::Activation::Silu);
      });
      EXPECT_LT(error(gated.host, gated.device), 2 * kTolerance) << rows << " x " << cols;
    }
}

// As embeddings are, that are scaled behind the first norm.
TEST_F(DeferredNormTest, IsDoneBeforeItsInputIsScaled) {
  const BothWeight w = weight({DType::BF16}, 100, 1024, false);
  const Both x = random(1, 1024), gain = vector(1024);
  Both stream = zeros(1, 1024), normed = zeros(1, 1024), out = zeros(1, 100);
  ref().rms_norm(normed.host, x.host, gain.host, 0.5f);
  ref().matmul(out.host, normed.host, w.host);
  ref().copy(stream.host, x.host);
  ref().scale(stream.host, 8.0f);
  run([&] {
    gpu().copy(stream.device, x.device);
    gpu().rms_norm(normed.device, stream.device, gain.device, 0.5f);
    gpu().scale(stream.device, 8.0f);
    gpu().matmul(out.device, normed.device, w.device);
  });
  EXPECT_LT(error(normed.host, normed.device), kTolerance);
  EXPECT_LT(error(stream.host, stream.device), kTolerance);
  EXPECT_LT(error(out.host, out.device), kTolerance);
}

// Widths of one piece and more for a thread, with sums of x kept for groups of every size.
TEST_F(DeferredNormTest, IsDoneByGemmsOfUnits) {
  for (const DType type : {DType::Q4_K, DType::Q4_0, DType::Q6_K, DType::Q8_0, DType::Q4_Z})
    for (const int64_t cols : {256, 2304, 8192})
      for (const int64_t rows : {96, 8500, 66016}) {
        if (rows * cols > int64_t{24} << 20) continue;
        group_ = type == DType::Q4_Z ? 128 : 0;
        const BothWeight w = weight({type}, rows, cols, false);
        const Both x = random(1, cols), gain = vector(cols);
        Both normed = zeros(1, cols), out = zeros(1, rows), gated = zeros(1, rows / 2), wide = zeros(1, rows);
        ref().rms_norm(normed.host, x.host, gain.host, 1e-5f);
        ref().matmul(out.host, normed.host, w.host);
        ref().matmul_gated(gated.host, wide.host, normed.host, w.host, kernels::Activation::Silu);
        run([&] {
          gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
          gpu().matmul(out.device, normed.device, w.device);
        });
        EXPECT_LT(error(normed.host, normed.device), kTolerance)
            << name(type) << " " << rows << " x " << cols;
        EXPECT_LT(error(out.host, out.device), kTolerance) << name(type) << " " << rows << " x " << cols;
        run([&] {
          gpu().rms_norm(normed.device, x.device, TensorView{}, 1e-5f);
          gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
          gpu().matmul_gated(gated.device, wide.device, normed.device, w.device, kernels::Activation::Silu);
        });
        EXPECT_LT(error(gated.host, gated.device), 2 * kTolerance)
            << name(type) << " " << rows << " x " << cols;
      }
}

// A router's logits are f32.
TEST_F(DeferredNormTest, IsDoneByARouter) {
  for (const int64_t cols : {512, 1000, 2048, 4096}) {
    const BothWeight w = weight({DType::BF16}, 130, cols, false);
    const Both x = random(1, cols), gain = vector(cols);
    Both normed = zeros(1, cols), out = zeros(1, 130);
    const kernels::Memory logits = gpu().allocate(DType::F32, {1, 130});
    ref().rms_norm(normed.host, x.host, gain.host, 1e-5f);
    ref().matmul(out.host, normed.host, w.host);
    run([&] {
      gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
      gpu().matmul(logits.view, normed.device, w.device);
    });
    EXPECT_LT(error(normed.host, normed.device), kTolerance) << cols;
    EXPECT_LT(error(out.host, logits.view), kTolerance) << cols;
  }
}

// Every operation that is not such a GEMM finds the norm done, the end of a step too.
TEST_F(DeferredNormTest, IsDoneBeforeAnythingElse) {
  const int64_t dim = 1024;
  const BothWeight w = weight({DType::BF16}, dim, dim, false);
  const Both x = random(1, dim), gain = vector(dim), other = random(1, dim);
  Both normed = zeros(1, dim), sum = zeros(1, dim), out = zeros(1, dim), again = zeros(1, dim);
  ref().rms_norm(normed.host, x.host, gain.host, 1e-5f);
  ref().add(sum.host, normed.host, other.host, 1.0f);
  ref().matmul(out.host, other.host, w.host);
  ref().matmul(again.host, normed.host, w.host);
  run([&] {
    gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
    gpu().add(sum.device, normed.device, other.device, 1.0f);
  });
  EXPECT_LT(error(sum.host, sum.device), kTolerance);
  run([&] {
    gpu().rms_norm(normed.device, x.device, gain.device, 1e-5f);
    gpu().matmul(out.device, other.device, w.device);
    gpu().matmul(again.device, normed.device, w.device);
  });
  EXPECT_LT(error(out.host, out.device), kTolerance);
  EXPECT_LT(error(again.host, again.device), kTolerance);
  Both last = zeros(1, dim);
  run([&] { gpu().rms_norm(last.device, x.device, gain.device, 1e-5f); });
  EXPECT_LT(error(normed.host, last.device), kTolerance);
}

// Of several tokens, behind a GEMM that adds to the stream: out += x · Wᵀ, then a GEMM of its norm.
class NormedSumTest : public DeferredNormTest {
 protected:
  struct Sum {
    BothWeight weight;
    Both x, stream, branch, gain, normed;
    kernels::RmsGain of(const TensorView& view) const { return {view, 1e-5f, true}; }
  };
  Sum sum(int64_t n, int64_t rows, int64_t cols) {
    return {weight({DType::BF16}, rows, cols, false),
            random(n, cols),
            random(n, rows),
            zeros(n, rows),
            vector(rows),
            zeros(n, rows)};
  }
  // Starts from the same stream each time.
  void run_behind(Sum& s, const std::function<void()>& reader) {
    const Both begin = random(s.x.host.dim(0), s.gain.host.dim(0));
    ref().copy(s.stream.host, begin.host);
    ref().matmul_add_rms_norm(s.normed.host, {s.stream.host, s.branch.host}, {s.x.host, &s.weight.host},
                              s.of(s.gain.host));
    run([&] {
      gpu().copy(s.stream.device, begin.device);
      gpu().matmul_add_rms_norm(s.normed.device, {s.stream.device, s.branch.device},
                                {s.x.device, &s.weight.device}, s.of(s.gain.device));
      reader();
    });
    EXPECT_LT(error(s.stream.host, s.stream.device), kTolerance);
  }
};

TEST_F(NormedSumTest, IsReadByAGemm) {
  struct Shape {
    int64_t dim, cols, rows;
  };
  const auto check = [&](int64_t n, const Shape& shape) {
    Sum s = sum(n, shape.dim, shape.cols);
    const BothWeight w = weight({DType::BF16}, shape.rows, shape.dim, false);
    Both out = zeros(n, shape.rows), gated = zeros(n, shape.rows / 2), wide = zeros(n, shape.rows);
    run_behind(s, [&] { gpu().matmul(out.device, s.normed.device, w.device); });
    ref().matmul(out.host, s.normed.host, w.host);
    EXPECT_LT(error(out.host, out.device), kTolerance) << n << ": " << shape.rows << " x " << shape.dim;
    run_behind(s, [&] {
      gpu().matmul_gated(gated.device, wide.device, s.normed.device, w.device, kernels::Activation::Silu);
    });
    ref().matmul_gated(gated.host, wide.host, s.normed.host, w.host, kernels::Activation::Silu);
    EXPECT_LT(error(gated.host, gated.device), 2 * kTolerance)
        << n << ": gated " << shape.rows << " x " << shape.dim;
  };
  for (const int64_t n : {2, 8, 15, 16, 20, 33, 64, 65, 96, 100})
    for (const Shape& shape : {Shape{1024, 512, 1000}, {640, 256, 2048}, {2048, 1024, 512}}) check(n, shape);
  for (const int64_t n : {8, 60}) check(n, {1024, 256, 16384});
}

// Matrices of several types, and of fp8, a library's GEMM, and what is no GEMM find the whole norm.
TEST_F(NormedSumTest, IsDoneBeforeAnythingElse) {
  for (const int64_t n : {8, 64}) {
    Sum s = sum(n, 1024, 2048);
    const BothWeight several = weight({DType::BF16, DType::Q8_0}, 512, 1024, false),
                     tall = weight({DType::BF16}, n > 8 ? 8 : 66000, 1024, false);
    Both out = zeros(n, 1024), large = zeros(n, tall.host.rows), copy = zeros(n, 1024);
    run_behind(s, [&] { gpu().matmul(out.device, s.normed.device, several.device); });
    ref().matmul(out.host, s.normed.host, several.host);
    EXPECT_LT(error(out.host, out.device), kTolerance) << n;
    EXPECT_LT(error(s.normed.host, s.normed.device), kTolerance) << n;
    run_behind(s, [&] { gpu().matmul(large.device, s.normed.device, tall.device); });
    ref().matmul(large.host, s.normed.host, tall.host);
    EXPECT_LT(error(large.host, large.device), kTolerance) << n;
    run_behind(s, [&] { gpu().copy(copy.device, s.normed.device); });
    EXPECT_LT(error(s.normed.host, copy.device), kTolerance) << n;
    run_behind(s, [] {});
    EXPECT_LT(error(s.normed.host, s.normed.device), kTolerance) << n;
  }
}

}  // namespace
}  // namespace sluice::cuda_test
