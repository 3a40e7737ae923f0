// Norms of heads and their gates in one pass against the two operations.
#include <cstring>

#include "kernels/recurrent.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::Activation;

class GatedNormTest : public DeviceTest {
 protected:
  std::vector<uint16_t> values_of(const TensorView& device) {
    HostTensor host = HostTensor::make(DType::BF16, {device.dim(0), device.dim(1)});
    gpu().download(host.view, device);
    const auto* at = host.view.at<uint16_t>();
    return {at, at + device.elements()};
  }
};

TEST_F(GatedNormTest, HasTheBitsOfNormAndGate) {
  auto& ops = dynamic_cast<kernels::RecurrentOps&>(gpu());
  for (const int64_t dim : {64, 128, 256}) {
    for (const auto& [n, heads] : {std::pair<int64_t, int>{1, 1}, {37, 5}, {130, 32}}) {
      for (const bool gains : {false, true}) {
        for (const Activation activation : {Activation::Silu, Activation::Sigmoid}) {
          SCOPED_TRACE(::testing::Message() << dim << " x " << heads << " x " << n << " gains " << gains);
          const int64_t width = heads * dim;
          const Both both = random(n, 2 * width), gain = vector(dim);
          Both fused = zeros(n, width), apart = zeros(n, width);
          const TensorView optional = gains ? gain.device : TensorView{};
          ASSERT_TRUE(ops.gated_norm(
              fused.device, {both.device.columns(width, 2 * width), both.device.columns(0, width), dim,
                             optional, 1e-6f, activation}));
          const TensorView rows = both.device.columns_as_heads(width, heads, dim);
          gpu().rms_norm(rows, rows, optional, 1e-6f);
          gpu().gated(apart.device, both.device, activation);
          EXPECT_EQ(values_of(fused.device), values_of(apart.device));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda_test
