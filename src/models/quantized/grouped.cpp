#include "models/quantized/grouped.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "tensor/half.h"

namespace sluice::models {

namespace {

constexpr int64_t kRowsAtOnce = 32;
constexpr int64_t kBlock = 32;
constexpr float kLargestHalf = 65504.0f;

constexpr float kRounding = 1.0f / 2048;      // of a normal f16
constexpr float kOfTheLargest = 1.0f / 8192;  // what a scale may be off by beside the largest of its matrix

// The block type that holds the matrix.
std::optional<DType> block_type(const GroupedMatrix& m) {
  if (!m.order.empty() || m.cols % kBlock != 0 || (m.group % kBlock != 0 && m.groups > 1))
    return std::nullopt;
  if (!fit_halves(m.scales)) return std::nullopt;
  const int middle = 1 << (m.bits - 1);
  const bool centred =
      std::all_of(m.zeros.begin(), m.zeros.end(), [&](uint8_t zero) { return zero == middle; });
  if (m.bits == 8) return centred ? std::optional(DType::Q8_0) : std::nullopt;
  if (m.bits > 4) return DType::Q8_0;  // code less zero point is a byte
  return centred && m.bits == 4 ? DType::Q4_0 : DType::Q4_Z;
}

void put_half(uint8_t* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, 2);
}

void put_block(uint8_t* to, DType type, const uint8_t* codes, float scale, float zero) {
  put_half(to, scale);
  if (type == DType::Q8_0) {
    for (int i = 0; i < 32; ++i) to[2 + i] = static_cast<uint8_t>(codes[i] - static_cast<int>(zero));
    return;
  }
  uint8_t* quants = to + 2;
  if (type == DType::Q4_Z) {
    put_half(quants, zero);
    quants += 2;
  }
  for (int i = 0; i < 16; ++i) quants[i] = static_cast<uint8_t>(codes[i] | codes[i + 16] << 4);
}

}  // namespace

bool fit_halves(std::span<const float> scales) {
  float largest = 0.0f;
  for (const float scale : scales) largest = std::max(largest, std::abs(scale));
  return largest <= kLargestHalf && std::all_of(scales.begin(), scales.end(), [&](float scale) {
           const float error = std::abs(f16_to_f32(f32_to_f16(scale)) - scale);
           return error <= std::abs(scale) * kRounding || error <= largest * kOfTheLargest;
         });
}

HostTensor make_plain(int64_t rows, int64_t cols, FunctionRef<void(int64_t, float*)> values) {
  std::vector<float> row(static_cast<size_t>(cols));
  float largest = 0.0f;
  for (int64_t r = 0; r < rows; ++r) {
    values(r, row.data());
    for (const float value : row) largest = std::max(largest, std::abs(value));
  }
  // A matrix of small values only would lose digits too.
  const bool halves = largest <= kLargestHalf && (largest == 0.0f || largest > 1e-3f);
  HostTensor out = HostTensor::make(halves ? DType::F16 : DType::F32, {rows, cols});
  for (int64_t r = 0; r < rows; ++r) {
    values(r, row.data());
    for (int64_t c = 0; c < cols; ++c) {
      const float value = row[static_cast<size_t>(c)];
      if (halves) {
        *out.view.at<uint16_t>(r, c) = f32_to_f16(value);
      } else {
        *out.view.at<float>(r, c) = value;
      }
    }
  }
  return out;
}

HostTensor make_grouped(const GroupedMatrix& m, GroupedMatrix::Fill fill) {
  const auto zero_of = [&](int64_t row, int64_t group) {
    const auto at = static_cast<size_t>(row * m.groups + group);
    return m.zeros.empty() ? 1 << (m.bits - 1) : int{m.zeros[at]};
  };
  const std::optional<DType> type = block_type(m);
  std::vector<uint8_t> codes(static_cast<size_t>(kRowsAtOnce * m.cols));
  if (!type) {
    int64_t first = -kRowsAtOnce;
    return make_plain(m.rows, m.cols, [&](int64_t row, float* out) {
      if (row / kRowsAtOnce * kRowsAtOnce != first) {
        first = row / kRowsAtOnce * kRowsAtOnce;
        fill(first, std::min(kRowsAtOnce, m.rows - first), codes.data());
      }
      const uint8_t* own = codes.data() + (row - first) * m.cols;
      for (int64_t c = 0; c < m.cols; ++c) {
        const int64_t group = m.group_at(c);
        out[c] = m.scales[static_cast<size_t>(row * m.groups + group)] *
                 static_cast<float>(own[c] - zero_of(row, group));
      }
    });
  }
  HostTensor out = HostTensor::make(*type, {m.rows, m.cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const int64_t bytes = info(*type).block_bytes;
  for (int64_t first = 0; first < m.rows; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, m.rows - first);
    fill(first, count, codes.data());
    for (int64_t row = first; row < first + count; ++row) {
      for (int64_t col = 0; col < m.cols; col += kBlock, to += bytes) {
        const int64_t group = m.group_at(col);
        put_block(to, *type, codes.data() + (row - first) * m.cols + col,
                  m.scales[static_cast<size_t>(row * m.groups + group)],
                  static_cast<float>(zero_of(row, group)));
      }
    }
  }
  return out;
}

}  // namespace sluice::models
