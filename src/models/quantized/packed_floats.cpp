#include <cmath>
#include <cstring>

#include "models/quantized/packed_formats.h"
#include "tensor/half.h"

namespace sluice::models {

namespace {

// Nibbles [rows, cols / 2], the first column low, to the order of our blocks: column i low, column i + 16 high.
void put_nibbles(uint8_t* to, const uint8_t* from) {
  const auto code = [&](int i) { return (from[i / 2] >> (i % 2 * 4)) & 0xf; };
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
}

}  // namespace

Result<HostTensor> read_nvfp4(const PackedModule& module, std::string_view values, float factor) {
  const Result<TensorView> view = module.tensor(values, DType::U8, 2);
  if (!view) return view.error();
  const int64_t rows = view->dim(0), cols = view->dim(1) * 2;
  const Result<TensorView> scales = module.tensor(".weight_scale", DType::F8_E4M3, 2);
  if (!scales) return scales.error();
  if (scales->dim(0) != rows || scales->dim(1) * 16 != cols || cols % 32 != 0)
    return wrong_tensor(*module.name(".weight_scale"),
                        "is {}, values are {}: must be [{}, {}], a multiple of 32 columns",
                        scales->describe(), view->describe(), rows, cols / 16);
  if (!std::isfinite(factor) || factor == 0.0f)
    return wrong_tensor(module.stem(), "its scale for the whole matrix is {}", factor);
  HostTensor out = HostTensor::make(DType::F4_16, {rows, cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const auto* from = static_cast<const uint8_t*>(view->data);
  const auto* scale = static_cast<const uint8_t*>(scales->data);
  for (int64_t i = 0; i < rows * cols / 32; ++i, to += 20, from += 16) {
    for (int half = 0; half < 2; ++half) {
      const uint16_t d = f32_to_f16(0.5f * factor * e4m3_to_f32(*scale++));
      std::memcpy(to + 2 * half, &d, 2);
    }
    put_nibbles(to + 4, from);
  }
  return out;
}

Result<HostTensor> read_mxfp4(const PackedModule& module) {
  const Result<TensorView> view = module.tensor(".weight_packed", DType::U8, 2);
  if (!view) return view.error();
  const Result<TensorView> scales = module.tensor(".weight_scale", DType::U8, 2);
  if (!scales) return scales.error();
  const int64_t rows = view->dim(0), cols = view->dim(1) * 2;
  if (scales->dim(0) != rows || scales->dim(1) * 32 != cols)
    return wrong_tensor(*module.name(".weight_scale"), "is {}, values are {}: must be [{}, {}]",
                        scales->describe(), view->describe(), rows, cols / 32);
  HostTensor out = HostTensor::make(DType::MXFP4, {rows, cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const auto* from = static_cast<const uint8_t*>(view->data);
  const auto* scale = static_cast<const uint8_t*>(scales->data);
  for (int64_t i = 0; i < rows * cols / 32; ++i, to += 17, from += 16) {
    to[0] = *scale++;
    put_nibbles(to + 1, from);
  }
  return out;
}

}  // namespace sluice::models
