// What the tests of the CUDA back-end share: the device and the reference side by side, the same random
// inputs on both, and comparisons by ‖a − b‖ / ‖b‖.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/cuda.h"

namespace sluice::cuda_test {

// The device's back-end for activations of a type, made once per program; null where there is none.
kernels::CudaBackend* device(DType activations = DType::BF16);

// Options of a back-end; SLUICE_CUDA_ARCH in the environment: behave as that architecture (CudaOptions::arch).
kernels::CudaOptions options();
// Whether those leave the back-end the kernels that sm_90a alone has.
bool uses_hopper();

// A tensor on both sides. `host` is f32 with values that the device's type holds exactly.
struct Both {
  HostTensor host_memory;
  kernels::Memory device_memory;
  TensorView host;
  TensorView device;
};

struct BothWeight {
  std::vector<HostTensor> memory;
  kernels::Weight host;
  kernels::Weight device;
};

// bf16 has 8 bits: one rounding of inputs, one of sums, one of outputs.
inline constexpr double kTolerance = 8e-3;

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;

  kernels::CudaBackend& gpu() { return *device(activations_); }
  kernels::Backend& ref() { return *ref_; }

  float normal() { return normal_(engine_); }
  int below(int limit) { return static_cast<int>(engine_() % static_cast<uint32_t>(limit)); }
  // Largest error of an operation that rounds once per input, sum and output.
  double tolerance() const { return activations_ == DType::F32 ? 5e-5 : kTolerance; }

  // Activations [n, dim], normal.
  Both random(int64_t n, int64_t dim, float scale = 1.0f);
  Both zeros(int64_t n, int64_t dim);
  // f32 on both sides.
  Both vector(int64_t count, float scale = 1.0f);
  BothWeight weight(const std::vector<DType>& types, int64_t rows_per_part, int64_t cols, bool bias);

  // ‖device − host‖ / ‖host‖; infinite where a value is not finite.
  double error(const TensorView& host, const TensorView& device_view);

  DType activations_ = DType::BF16;
  bool listed_ = false, table_ = false;  // of the weights that are made
  int64_t group_ = 0;                    // columns that share scales; 0: those of a block
  std::vector<kernels::ColumnOrder> orders_{};

 private:
  std::unique_ptr<kernels::Backend> ref_;
  std::mt19937 engine_{20251};
  std::normal_distribution<float> normal_;
};

// Every test twice: with bf16 and with f32 activations.
class EachActivation : public DeviceTest, public ::testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    activations_ = GetParam();
  }
};
inline const auto kEachActivation = ::testing::Values(DType::BF16, DType::F32);
inline std::string name_of(const ::testing::TestParamInfo<DType>& one) {
  return std::string(name(one.param));
}

// [n, heads * dim] as [n, heads, dim]
TensorView heads_of(const TensorView& view, int64_t heads);

}  // namespace sluice::cuda_test
