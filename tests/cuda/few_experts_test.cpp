// Mixtures of one to four tokens within a step, against the reference; their sum is added to the residual stream by what makes it.
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::ExpertBank;
using kernels::Routing;

struct FewShape {
  int64_t dim, inner;
  int experts, used, always;
};

class FewExpertsTest : public DeviceTest {
 protected:
  void make(const FewShape& shape) {
    listed_ = true;
    host_ = {}, device_ = {}, all_.clear();
    for (int e = 0; e < shape.experts + shape.always; ++e) {
      add(host_.gate_up, device_.gate_up, 2 * shape.inner, shape.dim);
      add(host_.down, device_.down, shape.dim, shape.inner);
    }
    routing_ = {};
    routing_.experts = shape.experts;
    routing_.used = shape.used;
    routing_.always = shape.always;
    routing_.always_weight = 0.7f;
    routing_.normalize = true;
  }
  ExpertBank host_, device_;
  Routing routing_;

 private:
  void add(std::vector<kernels::Weight>& host, std::vector<kernels::Weight>& device, int64_t rows,
           int64_t cols) {
    all_.push_back(weight({DType::BF16}, rows, cols, false));
    host.push_back(all_.back().host);
    device.push_back(all_.back().device);
  }
  std::vector<BothWeight> all_;
};

TEST_F(FewExpertsTest, MixAndAddWithinAStep) {
  // One expert for each token of several blocks' runs; widths that are no whole pieces of 256; two pieces of a row to a warp.
  for (const FewShape& shape : {FewShape{2048, 512, 20, 8, 1},
                                {2048, 704, 140, 6, 2},
                                {2880, 320, 12, 4, 0},
                                {1024, 1416, 6, 2, 0},
                                {4096, 256, 8, 2, 1}}) {
    make(shape);
    const Both gain = vector(shape.dim);
    for (const int64_t n : {1, 2, 3, 4}) {
      const int64_t slots = routing_.slots();
      const Both flat = vector(n * routing_.logits()), x = random(n, shape.dim, 0.1f);
      const auto logits = [&](const TensorView& v, Device where) {
        return TensorView::contiguous(v.data, DType::F32, {n, routing_.logits()}, where);
      };
      HostTensor ids = HostTensor::make(DType::I32, {n, slots}),
                 weights = HostTensor::make(DType::F32, {n, slots});
      const kernels::Memory ids_there = gpu().allocate(DType::I32, {n, slots}),
                            weights_there = gpu().allocate(DType::F32, {n, slots});
      Both out = zeros(n, shape.dim), normed = zeros(n, shape.dim);
      const Both stream = random(n, shape.dim, 0.1f), start = random(n, shape.dim, 0.1f);
      ref().route(ids.view, weights.view, logits(flat.host, Device::Cpu), routing_);
      ref().moe_ffn(out.host, x.host, ids.view, weights.view, host_);
      for (int turn = 0; turn < 3; ++turn)
        gpu().run_step([&] {
          gpu().route(ids_there.view, weights_there.view, logits(flat.device, Device::Cuda), routing_);
          gpu().moe_ffn(out.device, x.device, ids_there.view, weights_there.view, device_);
        });
      gpu().synchronize();
      EXPECT_LT(error(out.host, out.device), 2 * kTolerance) << shape.dim << " n " << n;
      EXPECT_LT(error(weights.view, weights_there.view), 1e-4) << shape.dim << " n " << n;
      // What the residual stream gets, from the same beginning each time.
      ref().copy(stream.host, start.host);
      ref().add_rms_norm(normed.host, {stream.host, out.host, 1.0f}, {gain.host, 1e-5f});
      for (int turn = 0; turn < 3; ++turn)
        gpu().run_step([&] {
          gpu().copy(stream.device, start.device);
          gpu().route(ids_there.view, weights_there.view, logits(flat.device, Device::Cuda), routing_);
          gpu().moe_ffn(out.device, x.device, ids_there.view, weights_there.view, device_);
          gpu().add_rms_norm(normed.device, {stream.device, out.device, 1.0f}, {gain.device, 1e-5f});
        });
      gpu().synchronize();
      EXPECT_LT(error(stream.host, stream.device), 2 * kTolerance) << shape.dim << " n " << n;
      EXPECT_LT(error(normed.host, normed.device), 2 * kTolerance) << shape.dim << " n " << n;
    }
  }
}

// A sum that was put off is made where nothing adds it, and where something else is launched first.
TEST_F(FewExpertsTest, ASumThatWasPutOffIsMade) {
  make({1024, 256, 8, 2, 0});
  const Both flat = vector(routing_.logits()), x = random(1, 1024, 0.1f), other = random(1, 1024);
  const auto logits = [&](const TensorView& v, Device where) {
    return TensorView::contiguous(v.data, DType::F32, {1, routing_.logits()}, where);
  };
  HostTensor ids = HostTensor::make(DType::I32, {1, 2}), weights = HostTensor::make(DType::F32, {1, 2});
  const kernels::Memory ids_there = gpu().allocate(DType::I32, {1, 2}),
                        weights_there = gpu().allocate(DType::F32, {1, 2});
  Both out = zeros(1, 1024), sum = zeros(1, 1024);
  ref().route(ids.view, weights.view, logits(flat.host, Device::Cpu), routing_);
  ref().moe_ffn(out.host, x.host, ids.view, weights.view, host_);
  ref().add(sum.host, other.host, out.host, 0.5f);
  for (int turn = 0; turn < 3; ++turn)
    gpu().run_step([&] {
      gpu().route(ids_there.view, weights_there.view, logits(flat.device, Device::Cuda), routing_);
      gpu().moe_ffn(out.device, x.device, ids_there.view, weights_there.view, device_);
      gpu().add(sum.device, other.device, out.device, 0.5f);
    });
  gpu().synchronize();
  EXPECT_LT(error(out.host, out.device), 2 * kTolerance);
  EXPECT_LT(error(sum.host, sum.device), 2 * kTolerance);
}

}  // namespace
}  // namespace sluice::cuda_test
