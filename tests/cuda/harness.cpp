#include "tests/cuda/harness.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/ref/ref.h"
#include "tensor/half.h"

namespace sluice::cuda_test {

namespace {

struct Device {
  std::unique_ptr<kernels::CudaBackend> backend;
  std::string reason;
};

Device make_device(kernels::Activations activations) {
  Device result;
  kernels::CudaOptions wanted = options();
  wanted.activations = activations;
  auto made = kernels::make_cuda_backend(wanted);
  if (made.ok()) {
    result.backend = std::move(made).value();
  } else {
    result.reason = made.error().message;
  }
  return result;
}

const Device& the_device(DType activations) {
  static const Device bf16 = make_device(kernels::Activations::Auto);
  static const Device f32 = make_device(kernels::Activations::F32);
  return activations == DType::F32 ? f32 : bf16;
}

// Byte offsets of the f16 scales of a block, and the range of what they multiply.
struct Scales {
  std::vector<int> offsets;
  float range;
};
Scales scales_of(DType type) {
  switch (type) {
    case DType::Q4_0:
    case DType::Q5_0:
      return {{0}, 16};
    case DType::NF4:
    case DType::FP4:
      return {{0}, 1};
    case DType::Q8_0:
    case DType::IQ4_NL:
      return {{0}, 127};
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_Z:
    case DType::F4_16:
      return {{0, 2}, 16};
    case DType::G4_NL:
    case DType::G4_2:
    case DType::G4_3X:
    case DType::G4_3S:
      return {{0}, 127 * 16};
    case DType::Q4_K:
      return {{0, 2}, 63 * 15};
    case DType::Q5_K:
      return {{0, 2}, 63 * 31};
    case DType::Q2_K:
      return {{80, 82}, 45};
    case DType::Q3_K:
      return {{108}, 128};
    case DType::Q6_K:
      return {{208}, 127 * 32};
    default:
      return {{}, 1};
  }
}

float rounded(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

}  // namespace

kernels::CudaOptions options() {
  const char* const arch = std::getenv("SLUICE_CUDA_ARCH");
  return {.arch = arch != nullptr ? std::atoi(arch) : 0};
}

bool uses_hopper() {
  return options().arch == 0 || options().arch == 90;
}

kernels::CudaBackend* device(DType activations) {
  return the_device(activations).backend.get();
}

void DeviceTest::SetUp() {
  if (device() == nullptr) GTEST_SKIP() << "no CUDA device: " << the_device(DType::BF16).reason;
  ref_ = kernels::make_ref_backend();
}

Both DeviceTest::zeros(int64_t n, int64_t dim) {
  Both both{HostTensor::make(DType::F32, {n, dim}), gpu().allocate(activations_, {n, dim}), {}, {}};
  both.host = both.host_memory.view;
  both.device = both.device_memory.view;
  return both;
}

// A weight with rows 0..n-1 taken in order is the way for bf16 activations to get to any device.
Both DeviceTest::random(int64_t n, int64_t dim, float scale) {
  Both both = zeros(n, dim);
  if (activations_ == DType::F32) {
    for (int64_t i = 0; i < n * dim; ++i) both.host.at<float>()[i] = scale * normal();
    both.device_memory = gpu().upload(both.host);
    both.device = both.device_memory.view;
    return both;
  }
  HostTensor table = HostTensor::make(DType::BF16, {n, dim});
  for (int64_t i = 0; i < n * dim; ++i) {
    both.host.at<float>()[i] = rounded(scale * normal());
    table.view.at<uint16_t>()[i] = f32_to_bf16(both.host.at<float>()[i]);
  }
  kernels::Weight weight;
  weight.parts = {table.view};
  weight.rows = n;
  weight.cols = dim;
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  gpu().embed(both.device, gpu().prepare(weight), ids);
  gpu().synchronize();
  return both;
}

Both DeviceTest::vector(int64_t count, float scale) {
  Both both{HostTensor::make(DType::F32, {count}), {}, {}, {}};
  both.host = both.host_memory.view;
  for (int64_t i = 0; i < count; ++i) both.host.at<float>()[i] = scale * normal();
  both.device_memory = gpu().upload(both.host);
  both.device = both.device_memory.view;
  return both;
}

BothWeight DeviceTest::weight(const std::vector<DType>& types, int64_t rows_per_part, int64_t cols,
                              bool bias) {
  BothWeight both;
  both.host.cols = cols;
  for (DType type : types) {
    HostTensor part = HostTensor::make(type, {rows_per_part, cols});
    auto* bytes = static_cast<uint8_t*>(part.view.data);
    const int64_t size = part.view.bytes();
    for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(below(256));
    const Scales scales = scales_of(type);
    const int step = info(type).block_bytes;
    const int64_t blocks = std::max<int64_t>(1, group_ / info(type).block_elements);  // with the same scales
    for (int64_t at = 0; at < size; at += step) {
      for (int offset : scales.offsets) {
        const uint16_t half = f32_to_f16(normal() / scales.range);
        const bool same = at / step % (cols / info(type).block_elements) % blocks != 0;
        const void* const from = &half;
        std::memcpy(bytes + at + offset, same ? bytes + at - step + offset : from, 2);
      }
      if (type == DType::MXFP4) bytes[at] = static_cast<uint8_t>(122 + below(6));
      if (type == DType::F8_E4M3) bytes[at] = static_cast<uint8_t>(below(0x48) | below(2) << 7);
      const float value = rounded(normal());
      const uint16_t short_float = type == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value);
      if (type == DType::F32) std::memcpy(bytes + at, &value, 4);
      if (type == DType::F16 || type == DType::BF16) std::memcpy(bytes + at, &short_float, 2);
    }
    both.host.parts.push_back(part.view);
    both.host.rows += rows_per_part;
    both.memory.push_back(std::move(part));
  }
  if (bias) {
    HostTensor values = HostTensor::make(DType::F32, {both.host.rows});
    for (int64_t i = 0; i < both.host.rows; ++i) values.view.at<float>()[i] = normal();
    both.host.bias = values.view;
    both.memory.push_back(std::move(values));
  }
  both.host.orders = orders_;
  both.host.listed = listed_;
  both.host.table = table_;
  both.device = gpu().prepare(both.host);
  both.host = ref().prepare(std::move(both.host));
  return both;
}

double DeviceTest::error(const TensorView& host, const TensorView& device_view) {
  HostTensor got = HostTensor::make(DType::F32, {device_view.elements()});
  TensorView out = got.view;
  gpu().download(out, device_view);
  double difference = 0, size = 0;
  int64_t i = 0;
  const int64_t heads = host.rank == 3 ? host.dim(1) : 1, rows = host.rank == 1 ? 1 : host.dim(0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const float* expected =
          host.rank == 1 ? host.at<float>() : host.at<float>(row, host.rank == 3 ? head : 0);
      for (int64_t k = 0; k < host.dim(-1); ++k, ++i) {
        const double a = got.view.at<float>()[i], b = expected[k];
        if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
        difference += (a - b) * (a - b);
        size += b * b;
      }
    }
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

TensorView heads_of(const TensorView& view, int64_t heads) {
  return view.columns_as_heads(0, heads, view.dim(1) / heads);
}

}  // namespace sluice::cuda_test
