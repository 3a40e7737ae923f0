// GEMMs whose columns are shared out among the blocks of a cluster, in every tile and number of shares, against the
// reference; by themselves, and as the back-end chooses them.
#include <cuda_runtime_api.h>

#include "kernels/cuda/common/views.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/gemm_params.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using namespace kernels::cuda;

class SplitTest : public DeviceTest {
 protected:
  static GemmSplitParams params(const Both& out, const Both& x, const kernels::Weight& weight) {
    GemmSplitParams s = blank<GemmSplitParams>();
    s.gemm.out = view_of(out.device);
    s.gemm.x = view_of(x.device);
    s.gemm.weight = device_weight(weight).matrices[0];
    s.gemm.bias = device_weight(weight).bias;
    return s;
  }
  // On the default stream, behind all that the back-end has to do.
  void run(const GemmSplitParams& s) {
    gpu().synchronize();
    launch_gemm_split(s, nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
};

TEST_F(SplitTest, EveryTileAndNumberOfShares) {
  int tried = 0;
  // Rows that end inside a tile; columns that end inside a stage, and shares of unequal length.
  for (auto [rows, cols] : {std::pair<int64_t, int64_t>{1032, 1096}, {2048, 648}}) {
    const BothWeight w = weight({DType::BF16}, rows, cols, true);
    for (int64_t n : {33, 64, 65, 128, 200, 256}) {
      const Both x = random(n, cols);
      Both expected = zeros(n, rows);
      ref().matmul(expected.host, x.host, w.host);
      for (int tile : {32, 64, 96, 128, 192, 224, 256}) {
        for (int shares : {1, 2, 4, 8}) {
          Both out = zeros(n, rows);
          GemmSplitParams s = params(out, x, w.device);
          s.tile_rows = tile;
          s.shares = shares;
          if (!gemm_split_fits(s)) continue;
          ++tried;
          run(s);
          EXPECT_LT(error(expected.host, out.device), kTolerance)
              << "n " << n << " rows " << rows << " tile " << tile << " shares " << shares;
        }
      }
    }
  }
  EXPECT_GT(tried, 150);
}

TEST_F(SplitTest, Gated) {
  for (auto activation : {kernels::Activation::Silu, kernels::Activation::GeluTanh}) {
    for (int64_t n : {40, 100, 250}) {
      const BothWeight w = weight({DType::BF16, DType::BF16}, 1000, 648, true);
      const Both x = random(n, 648, 0.1f);
      Both wide = zeros(n, 2000), expected = zeros(n, 1000), out = zeros(n, 1000);
      ref().matmul_gated(expected.host, wide.host, x.host, w.host, activation);
      for (int shares : {1, 2, 4}) {
        GemmSplitParams s = params(out, x, w.device);
        s.gated = 1;
        s.activation = static_cast<int32_t>(activation);
        s.shares = shares;
        ASSERT_TRUE(gemm_split_fits(s)) << n << " " << shares;
        run(s);
        EXPECT_LT(error(expected.host, out.device), kTolerance) << "n " << n << " shares " << shares;
      }
    }
  }
}

// The same bits every time: shares are added in one order.
TEST_F(SplitTest, RepeatsBitForBit) {
  const BothWeight w = weight({DType::BF16}, 1024, 2048, false);
  const Both x = random(64, 2048);
  Both first = zeros(64, 1024), again = zeros(64, 1024);
  gpu().matmul(first.device, x.device, w.device);
  for (int i = 0; i < 20; ++i) {
    gpu().matmul(again.device, x.device, w.device);
    gpu().synchronize();
    gpu().download(first.host, first.device);
    gpu().download(again.host, again.device);
    for (int64_t e = 0; e < first.host.elements(); ++e)
      ASSERT_EQ(first.host.at<float>()[e], again.host.at<float>()[e]) << e;
  }
}

}  // namespace
}  // namespace sluice::cuda_test
