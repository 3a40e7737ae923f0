#include "models/quantized/grouped.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "models/quantized/for_rows.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace sluice::models {

namespace {

constexpr int64_t kRowsAtOnce = 32;
constexpr int64_t kBlock = 32;
constexpr float kLargestHalf = 65504.0f;

constexpr float kRounding = 1.0f / 2048;      // of a normal f16
constexpr float kOfTheLargest = 1.0f / 8192;  // what a scale may be off by beside the largest of its matrix

// The columns group after group, those of one in their sequence.
std::vector<int32_t> columns_by_group(const GroupedMatrix& m) {
  std::vector<int32_t> columns(m.order.size());
  std::iota(columns.begin(), columns.end(), 0);
  std::stable_sort(columns.begin(), columns.end(), [&](int32_t a, int32_t b) {
    return m.order[static_cast<size_t>(a)] < m.order[static_cast<size_t>(b)];
  });
  return columns;
}

// Whether each block has columns of one group; `columns`: in the order in which they are to lie.
bool blocks_have_one_group(const GroupedMatrix& m, const std::vector<int32_t>& columns) {
  if (m.cols % kBlock != 0) return false;
  if (columns.empty()) return m.group % kBlock == 0 || m.groups <= 1;
  for (size_t k = 0; k < columns.size(); ++k)
    if (m.group_at(columns[k]) != m.group_at(columns[k / kBlock * kBlock])) return false;
  return true;
}

// The block type that holds the matrix.
std::optional<DType> block_type(const GroupedMatrix& m, const std::vector<int32_t>& columns) {
  if (!blocks_have_one_group(m, columns)) return std::nullopt;
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

namespace {

int zero_of(const GroupedMatrix& m, int64_t row, int64_t group) {
  return m.zeros.empty() ? 1 << (m.bits - 1) : int{m.zeros[static_cast<size_t>(row * m.groups + group)]};
}

// Values of rows [first, first + count) to `out` [count, cols]; called by several threads.
using Values = FunctionRef<void(int64_t first, int64_t count, float* out)>;

// Calls use(first, count, values) for all rows, kRowsAtOnce at a time.
void for_values(int64_t rows, int64_t cols, Values values,
                FunctionRef<void(int64_t, int64_t, const float*)> use) {
  for_rows(rows, cols, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    std::vector<float> some(static_cast<size_t>(std::min(kRowsAtOnce, end - begin) * cols));
    for (int64_t first = begin; first < end; first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, end - first);
      values(first, count, some.data());
      use(first, count, some.data());
    }
  });
}

void raise(std::atomic<float>& to, float value) {
  float seen = to.load();
  while (seen < value && !to.compare_exchange_weak(seen, value)) {
  }
}

HostTensor make_plain_of(int64_t rows, int64_t cols, Values values) {
  std::atomic<float> largest = 0.0f;
  for_values(rows, cols, values, [&](int64_t, int64_t count, const float* some) {
    float most = 0.0f;
    for (int64_t i = 0; i < count * cols; ++i) most = std::max(most, std::abs(some[i]));
    raise(largest, most);
  });
  // A matrix of small values only would lose digits too.
  const bool halves = largest <= kLargestHalf && (largest == 0.0f || largest > 1e-3f);
  HostTensor out = HostTensor::make(halves ? DType::F16 : DType::F32, {rows, cols});
  for_values(rows, cols, values, [&](int64_t first, int64_t count, const float* some) {
    if (!halves) {
      std::memcpy(out.view.at<float>(first, 0), some, static_cast<size_t>(count * cols) * sizeof *some);
      return;
    }
    auto* to = out.view.at<uint16_t>(first, 0);
    for (int64_t i = 0; i < count * cols; ++i) to[i] = f32_to_f16(some[i]);
  });
  return out;
}

HostTensor make_plain_grouped(const GroupedMatrix& m, GroupedMatrix::Fill fill) {
  return make_plain_of(m.rows, m.cols, [&](int64_t first, int64_t count, float* out) {
    std::vector<uint8_t> codes(static_cast<size_t>(count * m.cols));
    fill(first, count, codes.data());
    const uint8_t* code = codes.data();
    for (int64_t row = first; row < first + count; ++row) {
      for (int64_t c = 0; c < m.cols; ++c) {
        const int64_t group = m.group_at(c);
        *out++ = m.scales[static_cast<size_t>(row * m.groups + group)] *
                 static_cast<float>(*code++ - zero_of(m, row, group));
      }
    }
  });
}

}  // namespace

HostTensor make_plain(int64_t rows, int64_t cols, FunctionRef<void(int64_t, float*)> values) {
  return make_plain_of(rows, cols, [&](int64_t first, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) values(first + i, out + i * cols);
  });
}

QuantizedMatrix make_grouped(const GroupedMatrix& m, GroupedMatrix::Fill fill) {
  std::vector<int32_t> columns = columns_by_group(m);
  const std::optional<DType> type = block_type(m, columns);
  if (!type) return {make_plain_grouped(m, fill), {}};
  if (std::is_sorted(columns.begin(), columns.end())) columns.clear();
  HostTensor out = HostTensor::make(*type, {m.rows, m.cols});
  auto* const blocks = reinterpret_cast<uint8_t*>(out.buffer.data());
  const int64_t bytes = info(*type).block_bytes;
  for_rows(m.rows, m.cols, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(std::min(kRowsAtOnce, end - begin) * m.cols));
    std::vector<uint8_t> ordered(columns.size());
    uint8_t* to = blocks + begin * m.cols / kBlock * bytes;
    for (int64_t first = begin; first < end; first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, end - first);
      fill(first, count, codes.data());
      for (int64_t row = first; row < first + count; ++row) {
        const uint8_t* own = codes.data() + (row - first) * m.cols;
        for (size_t k = 0; k < columns.size(); ++k) ordered[k] = own[columns[k]];
        if (!columns.empty()) own = ordered.data();
        for (int64_t col = 0; col < m.cols; col += kBlock, to += bytes) {
          const int64_t group = m.group_at(columns.empty() ? col : columns[static_cast<size_t>(col)]);
          put_block(to, *type, own + col, m.scales[static_cast<size_t>(row * m.groups + group)],
                    static_cast<float>(zero_of(m, row, group)));
        }
      }
    }
  });
  return {std::move(out), std::move(columns)};
}

HostTensor plain_in_order_of_x(const TensorView& matrix, const std::vector<int32_t>& columns) {
  return make_plain(matrix.dim(0), matrix.dim(1), [&](int64_t row, float* out) {
    std::vector<float> ordered(columns.size());
    dequantize_row(matrix.dtype, matrix.rows(row, row + 1).data, ordered.data(), matrix.dim(1));
    for (size_t k = 0; k < columns.size(); ++k) out[columns[k]] = ordered[k];
  });
}

}  // namespace sluice::models
