#include "tests/parity/harness.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/panels/format.h"
#include "kernels/host.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace sluice::parity {

std::vector<std::unique_ptr<kernels::Backend>> cpu_backends(int threads) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  for (const std::string& isa : kernels::available_isa_names()) {
    backends.push_back(kernels::make_cpu_backend({threads, isa}).value());
  }
  for (const kernels::cpu::IsaLevel& level : kernels::cpu::modelled_isa_levels())
    backends.push_back(std::make_unique<kernels::cpu::CpuBackend>(level, ComputeCores{threads, {}}, true));
  return backends;
}

namespace {

bool has_tiles(const kernels::Backend& backend) {
  return backend.name().find("amx") != std::string::npos;
}

}  // namespace

std::vector<std::unique_ptr<kernels::Backend>> tile_backends(int threads) {
  std::vector<std::unique_ptr<kernels::Backend>> backends = cpu_backends(threads);
  std::erase_if(backends, [](const auto& backend) { return !has_tiles(*backend); });
  return backends;
}

bool takes_tiles(const kernels::Backend& backend, DType type) {
  return has_tiles(backend) && kernels::cpu::has_words(type);
}

bool takes_columns(const kernels::Backend& backend, DType type) {
  const bool arm = backend.name().find("neon") != std::string::npos;
  return !arm && !takes_tiles(backend, type) && kernels::cpu::has_columns(type);
}

float attention_tolerance(const kernels::Backend& backend, DType type) {
  if (type == DType::I8) return 2e-4f;
  return has_tiles(backend) ? 4e-5f : 5e-6f;
}

bool small_run() {
  return std::getenv("SLUICE_PARITY_SMALL") != nullptr;
}

std::vector<int64_t> token_counts() {
  if (small_run()) return {1, 2, 3, 8, 17};
  return {1, 2, 3, 5, 8, 16, 17, 33};
}

HostTensor Random::tensor(std::initializer_list<int64_t> shape, float scale) {
  HostTensor tensor = HostTensor::make(DType::F32, shape);
  float* values = tensor.view.at<float>();
  for (int64_t i = 0; i < tensor.view.elements(); ++i) values[i] = scale * normal();
  return tensor;
}

namespace {

// Byte offsets of the f16 scales of a block.
std::vector<int> scale_offsets(DType type) {
  switch (type) {
    case DType::Q4_0:
    case DType::Q5_0:
    case DType::Q8_0:
    case DType::IQ4_NL:
    case DType::NF4:
    case DType::FP4:
    case DType::G4_NL:
    case DType::G4_2:
    case DType::G4_3X:
    case DType::G4_3S:
      return {0};
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::Q4_Z:
    case DType::F4_16:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108};
    case DType::Q6_K:
      return {208};
    default:
      return {};
  }
}

// Largest magnitude that the quants and integer scales of a block can reach, to give weights of about 1.
float quant_range(DType type) {
  switch (type) {
    case DType::Q8_0:
    case DType::IQ4_NL:
      return 127;
    case DType::G4_NL:
    case DType::G4_2:
    case DType::G4_3X:
    case DType::G4_3S:
      return 127 * 16;
    case DType::NF4:
    case DType::FP4:
      return 1;
    case DType::Q2_K:
      return 45;
    case DType::Q3_K:
      return 128;
    case DType::Q4_K:
      return 63 * 15;
    case DType::Q5_K:
      return 63 * 31;
    case DType::Q6_K:
      return 127 * 32;
    default:
      return 16;
  }
}

void fill_blocks(Random& random, const TensorView& view) {
  auto* bytes = static_cast<uint8_t*>(view.data);
  const int block_bytes = info(view.dtype).block_bytes;
  for (int64_t i = 0; i < view.bytes(); ++i) bytes[i] = static_cast<uint8_t>(random.below(256));
  for (int64_t at = 0; at < view.bytes(); at += block_bytes) {
    for (int offset : scale_offsets(view.dtype)) {
      const uint16_t half = f32_to_f16(random.normal() / quant_range(view.dtype));
      std::memcpy(bytes + at + offset, &half, 2);
    }
    if (view.dtype == DType::MXFP4) bytes[at] = static_cast<uint8_t>(122 + random.below(6));
  }
}

}  // namespace

void fill_codes(const TensorView& view, uint8_t value) {
  auto* bytes = static_cast<uint8_t*>(view.data);
  const int block_bytes = info(view.dtype).block_bytes;
  for (int64_t at = 0; at < view.bytes(); at += block_bytes) {
    const std::vector<uint8_t> old(bytes + at, bytes + at + block_bytes);
    std::memset(bytes + at, value, static_cast<size_t>(block_bytes));
    for (int offset : scale_offsets(view.dtype)) std::memcpy(bytes + at + offset, old.data() + offset, 2);
    if (view.dtype == DType::MXFP4) bytes[at] = old[0];
  }
}

namespace {

void fill_plain(Random& random, const TensorView& view) {
  auto* bytes = static_cast<uint8_t*>(view.data);
  for (int64_t i = 0; i < view.elements(); ++i) {
    const float value = random.normal();
    const uint16_t half = view.dtype == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (view.dtype == DType::F32) std::memcpy(bytes + 4 * i, &value, 4);
    if (view.dtype == DType::F16 || view.dtype == DType::BF16) std::memcpy(bytes + 2 * i, &half, 2);
    // codes below 0x48 reach magnitude 4, subnormals among them
    if (view.dtype == DType::F8_E4M3)
      bytes[i] = static_cast<uint8_t>(random.below(0x48) | random.below(2) << 7);
  }
}

}  // namespace

OwnedWeight random_weight(Random& random, const std::vector<DType>& types, int64_t rows_per_part,
                          int64_t cols, bool bias) {
  OwnedWeight owned;
  owned.weight.cols = cols;
  for (DType type : types) {
    HostTensor part = HostTensor::make(type, {rows_per_part, cols});
    if (is_block(type)) {
      fill_blocks(random, part.view);
    } else {
      fill_plain(random, part.view);
    }
    owned.weight.parts.push_back(part.view);
    owned.weight.rows += rows_per_part;
    owned.memory.push_back(std::move(part));
  }
  if (bias) {
    HostTensor vector = random.tensor({owned.weight.rows});
    owned.weight.bias = vector.view;
    owned.memory.push_back(std::move(vector));
  }
  return owned;
}

std::vector<float> row_of(const kernels::Weight& weight, int64_t row) {
  std::vector<float> values(static_cast<size_t>(weight.cols));
  const kernels::WeightRow stored = kernels::weight_row(weight, row);
  dequantize_row(stored.type, stored.data, values.data(), weight.cols);
  return values;
}

std::vector<DType> weight_types() {
  std::vector<DType> types;
  for (const DTypeInfo& type : kDTypes) {
    if (type.type != DType::I8 && type.type != DType::I32 && type.type != DType::U8 &&
        !is_file_only(type.type))
      types.push_back(type.type);
  }
  return types;
}

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values;
  for (int64_t row = 0; row < kernels::row_count(view); ++row) {
    const float* from = kernels::row_at<float>(view, row);
    values.insert(values.end(), from, from + view.dim(-1));
  }
  return values;
}

::testing::AssertionResult same_bits(const TensorView& a, const TensorView& b) {
  const std::vector<float> first = values_of(a);
  const std::vector<float> second = values_of(b);
  if (first.size() != second.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < first.size(); ++i) {
    if (std::memcmp(&first[i], &second[i], 4) != 0) {
      return ::testing::AssertionFailure() << "element " << i << ": " << first[i] << " vs " << second[i];
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult near(const TensorView& a, const TensorView& b, float tolerance) {
  const std::vector<float> first = values_of(a);
  const std::vector<float> second = values_of(b);
  if (first.size() != second.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < first.size(); ++i) {
    if (!(std::fabs(first[i] - second[i]) <= tolerance * (1 + std::fabs(second[i])))) {
      return ::testing::AssertionFailure() << "element " << i << ": " << first[i] << " vs " << second[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sluice::parity
