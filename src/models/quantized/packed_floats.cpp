#include <cmath>
#include <cstring>

#include "models/quantized/grouped.h"
#include "models/quantized/packed_formats.h"
#include "models/quantized/unpack.h"
#include "tensor/half.h"

namespace sluice::models {

namespace {

// Nibbles [rows, cols / 2], the first column low, to the order of our blocks: column i low, column i + 16 high.
void put_nibbles(uint8_t* to, const uint8_t* from) {
  const auto code = [&](int i) { return (from[i / 2] >> (i % 2 * 4)) & 0xf; };
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
}

constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// e2m1 [rows, cols] with a scale for each 16 columns, where blocks of 32 columns or f16 scales cannot hold it.
HostTensor make_plain_nvfp4(const uint8_t* from, int64_t rows, int64_t cols,
                            const std::vector<float>& scales) {
  return make_plain(rows, cols, [&](int64_t row, float* out) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = row * cols + c;
      out[c] = kE2m1[(from[i / 2] >> (i % 2 * 4)) & 0xf] * scales[static_cast<size_t>(i / 16)];
    }
  });
}

}  // namespace

Result<HostTensor> read_nvfp4(const PackedModule& module, std::string_view values, float factor) {
  const Result<TensorView> view = module.tensor(values, DType::U8, 2);
  if (!view) return view.error();
  const int64_t rows = view->dim(0), cols = view->dim(1) * 2;
  const Result<TensorView> shape = module.tensor(".weight_scale", DType::F8_E4M3, 2);
  if (!shape) return shape.error();
  if (shape->dim(0) != rows || shape->dim(1) * 16 != cols)
    return wrong_tensor(*module.name(".weight_scale"), "is {}, values are {}: must be [{}, {}]",
                        shape->describe(), view->describe(), rows, cols / 16);
  if (!std::isfinite(factor) || factor == 0.0f)
    return wrong_tensor(module.stem(), "its scale for the whole matrix is {}", factor);
  Result<std::vector<float>> scales = module.floats(".weight_scale", rows * cols / 16);
  if (!scales) return scales.error();
  for (float& scale : *scales) scale *= factor;
  const auto* from = static_cast<const uint8_t*>(view->data);
  std::vector<float> halves = *scales;  // of codes that count halves
  for (float& scale : halves) scale *= 0.5f;
  if (cols % 32 != 0 || !fit_halves(halves)) return make_plain_nvfp4(from, rows, cols, *scales);
  HostTensor out = HostTensor::make(DType::F4_16, {rows, cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  for (int64_t i = 0; i < rows * cols / 32; ++i, to += 20, from += 16) {
    for (int64_t half = 0; half < 2; ++half) {
      const uint16_t d = f32_to_f16(halves[static_cast<size_t>(2 * i + half)]);
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
  if (Status status = check_exponents(*scales); !status)
    return wrong_tensor(*module.name(".weight_scale"), "{}", status.error().message);
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
