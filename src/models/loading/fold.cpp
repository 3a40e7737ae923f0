#include "models/loading/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/blocks.h"

namespace sluice::models {

namespace {

// For row i of "all queries, all keys, all values": the stored row, where each kv head keeps its queries, its
// key and its value together.
std::vector<int64_t> ungroup_rows(const QkvShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  std::vector<int64_t> rows;
  const auto push_head = [&](int64_t kv_head, int64_t place) {
    for (int64_t d = 0; d < shape.head_dim; ++d)
      rows.push_back((kv_head * (group + 2) + place) * shape.head_dim + d);
  };
  for (int64_t head = 0; head < shape.heads; ++head) push_head(head / group, head % group);
  for (int64_t head = 0; head < shape.kv_heads; ++head) push_head(head, group);
  for (int64_t head = 0; head < shape.kv_heads; ++head) push_head(head, group + 1);
  return rows;
}

// The same where four quarters of the heads keep their queries, then their values, then their keys.
std::vector<int64_t> unquarter_rows(const QkvShape& shape) {
  const int64_t width = int64_t{shape.heads} * shape.head_dim / 4;
  std::vector<int64_t> rows;
  for (const int64_t place : {0, 2, 1})
    for (int64_t quarter = 0; quarter < 4; ++quarter)
      for (int64_t d = 0; d < width; ++d) rows.push_back((quarter * 3 + place) * width + d);
  return rows;
}

// Rows [begin, begin + count) of each of `groups` groups of `size` rows.
struct RowParts {
  int64_t groups, size, begin, count;
  void append(std::vector<int64_t>& rows) const {
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t row = 0; row < count; ++row) rows.push_back(group * size + begin + row);
  }
};

// The rows that are taken of a matrix with other rows between them.
std::vector<int64_t> unpacked_rows(Fold fold, const QkvShape& s) {
  const int64_t shared = s.kv_heads > 0 ? s.heads / s.kv_heads : 1, values = shared * s.value_dim,
                key = s.head_dim;
  const int64_t packed = 2 * (key + values);
  std::vector<int64_t> rows;
  if (fold == Fold::HeadQueries) RowParts{s.heads, 2 * key, 0, key}.append(rows);
  if (fold == Fold::HeadGates) RowParts{s.heads, 2 * key, key, key}.append(rows);
  if (fold == Fold::PackedQkv) {
    RowParts{s.kv_heads, packed, 0, key}.append(rows);
    RowParts{s.kv_heads, packed, key, key}.append(rows);
    RowParts{s.kv_heads, packed, 2 * key, values}.append(rows);
  }
  if (fold == Fold::PackedGates) RowParts{s.kv_heads, packed, 2 * key + values, values}.append(rows);
  if (fold == Fold::PackedBetas) RowParts{s.kv_heads, 2 * shared, 0, shared}.append(rows);
  if (fold == Fold::PackedDecays) RowParts{s.kv_heads, 2 * shared, shared, shared}.append(rows);
  return rows;
}

std::vector<int64_t> row_order(Fold fold, const QkvShape& shape) {
  if (fold == Fold::GroupedQkv) return ungroup_rows(shape);
  if (fold == Fold::QuarteredQvk) return unquarter_rows(shape);
  return {};
}

HostTensor unit_rows(TensorView stored) {
  const int64_t rows = stored.dim(0), cols = stored.dim(1);
  HostTensor out = HostTensor::make(DType::F32, {rows, cols});
  for (int64_t r = 0; r < rows; ++r) {
    float* row = out.view.at<float>(r);
    dequantize_row(stored.dtype, stored.rows(r, r + 1).data, row, cols);
    double square = 0.0;
    for (int64_t c = 0; c < cols; ++c) square += static_cast<double>(row[c]) * row[c];
    const auto factor = static_cast<float>(1.0 / std::max(std::sqrt(square), 1e-12));
    for (int64_t c = 0; c < cols; ++c) row[c] *= factor;
  }
  return out;
}

// Row i of the result is column order[i] of the stored matrix.
HostTensor transpose(TensorView stored, bool split_pairs) {
  const int64_t cols = stored.dim(0), rows = stored.dim(1);
  const auto width = static_cast<size_t>(info(stored.dtype).block_bytes);
  HostTensor out = HostTensor::make(stored.dtype, {rows, cols});
  const auto* from = static_cast<const std::byte*>(stored.data);
  std::byte* to = out.buffer.data();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t column = !split_pairs ? r : r < rows / 2 ? 2 * r : 2 * (r - rows / 2) + 1;
    for (int64_t c = 0; c < cols; ++c)
      std::memcpy(to + static_cast<size_t>(r * cols + c) * width,
                  from + static_cast<size_t>(c * rows + column) * width, width);
  }
  return out;
}

}  // namespace

Result<HostTensor> fold_matrix(TensorView stored, Fold fold, const QkvShape& shape) {
  if (fold == Fold::Transpose || fold == Fold::SplitPairs) {
    if (is_block(stored.dtype))
      return Error{ErrorCode::Unsupported,
                   fmt::format("a {} matrix cannot be transposed", name(stored.dtype))};
    return transpose(stored, fold == Fold::SplitPairs);
  }
  if (fold == Fold::UnitRows) return unit_rows(stored);
  const auto bytes = static_cast<size_t>(row_bytes(stored.dtype, stored.dim(1)));
  const auto* from = static_cast<const std::byte*>(stored.data);
  std::vector<int64_t> order = row_order(fold, shape);
  if (!order.empty() && static_cast<int64_t>(order.size()) != stored.dim(0))
    return Error{ErrorCode::Corrupt,
                 fmt::format("a grouped qkv matrix has {} rows, must have {}", stored.dim(0), order.size())};
  if (order.empty()) order = unpacked_rows(fold, shape);
  if (!order.empty() && *std::max_element(order.begin(), order.end()) >= stored.dim(0))
    return Error{ErrorCode::Corrupt, fmt::format("a packed matrix has {} rows, {} are taken from more",
                                                 stored.dim(0), order.size())};
  const int64_t rows = order.empty() ? stored.dim(0) : static_cast<int64_t>(order.size());
  HostTensor out = HostTensor::make(stored.dtype, {rows, stored.dim(1)});
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t source = order.empty() ? r : order[static_cast<size_t>(r)];
    std::memcpy(out.buffer.data() + static_cast<size_t>(r) * bytes,
                from + static_cast<size_t>(source) * bytes, bytes);
  }
  return out;
}

std::vector<float> fold_vector(TensorView stored, Fold fold, const QkvShape& shape) {
  std::vector<float> values(static_cast<size_t>(stored.elements()));
  dequantize_row(stored.dtype, stored.data, values.data(), stored.elements());
  if (fold == Fold::AddOne)
    for (float& value : values) value += 1.0f;
  if (fold == Fold::NegativeExp)
    for (float& value : values) value = -std::exp(value);
  if (fold == Fold::SplitPairs) {
    const std::vector<float> pairs = values;
    for (size_t i = 0; i < pairs.size(); ++i) values[i / 2 + (i % 2) * (pairs.size() / 2)] = pairs[i];
  }
  const std::vector<int64_t> order = row_order(fold, shape);
  if (order.size() == values.size()) {
    const std::vector<float> grouped = values;
    for (size_t i = 0; i < order.size(); ++i) values[i] = grouped[static_cast<size_t>(order[i])];
  }
  const std::vector<int64_t> taken = unpacked_rows(fold, shape);
  if (taken.empty() || *std::max_element(taken.begin(), taken.end()) >= stored.elements()) return values;
  std::vector<float> unpacked;
  for (const int64_t row : taken) unpacked.push_back(values[static_cast<size_t>(row)]);
  return unpacked;
}

HostTensor dequantize_transposed(TensorView matrix) {
  const int64_t rows = matrix.dim(0), cols = matrix.dim(1);
  HostTensor out = HostTensor::make(DType::F32, {cols, rows});
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    dequantize_row(matrix.dtype, matrix.rows(r, r + 1).data, row.data(), cols);
    for (int64_t c = 0; c < cols; ++c) *out.view.at<float>(c, r) = row[static_cast<size_t>(c)];
  }
  return out;
}

}  // namespace sluice::models
