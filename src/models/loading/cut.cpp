// What a rank keeps of a matrix: rows as views of the file, columns as copies, so that nothing else of it is read.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "models/loading/binder.h"
#include "models/quantized/grouped.h"

namespace sluice::models {

std::vector<float> kept_rows(const std::vector<float>& values, const Cut& cut) {
  if (cut.rows.empty()) return values;
  std::vector<float> kept;
  for (const dist::Range& range : cut.rows)
    kept.insert(kept.end(), values.begin() + range.begin, values.begin() + range.end);
  return kept;
}

TensorView Binder::kept_columns(WeightSlot slot, TensorView rows, const std::vector<dist::Range>& cols) {
  const int block = info(rows.dtype).block_elements;
  int64_t kept = 0;
  for (const dist::Range& range : cols) {
    kept += range.size();
    if (range.begin % block == 0 && range.end % block == 0) continue;
    fail(fmt::format("{}: {} is stored in blocks of {} columns, and a rank would get the columns {} to {}",
                     where(slot), rows.describe(), block, range.begin, range.end));
    return rows;
  }
  const auto whole = static_cast<size_t>(row_bytes(rows.dtype, rows.dim(1)));
  HostTensor copy = HostTensor::make(rows.dtype, {rows.dim(0), kept});
  const auto* from = static_cast<const std::byte*>(rows.data);
  std::byte* to = copy.buffer.data();
  for (int64_t row = 0; row < rows.dim(0); ++row, from += whole)
    for (const dist::Range& range : cols) {
      const auto width = static_cast<size_t>(row_bytes(rows.dtype, range.size()));
      std::memcpy(to, from + row_bytes(rows.dtype, range.begin), width);
      to += width;
    }
  return keep(std::move(copy));
}

Weight Binder::kept(WeightSlot slot, Weight whole, const Cut& cut) {
  if ((cut.rows.empty() && cut.cols.empty()) || !status_.ok()) return whole;
  const auto all_or = [](const std::vector<dist::Range>& some, int64_t count) {
    return some.empty() ? std::vector<dist::Range>{{0, count}} : some;
  };
  const std::vector<dist::Range> ranges = all_or(cut.rows, whole.rows), cols = all_or(cut.cols, whole.cols);
  Weight out = whole;
  out.parts.clear();
  out.orders.clear();
  out.rows = 0;
  out.cols = 0;
  for (const dist::Range& range : cols) out.cols += range.size();
  for (const dist::Range& range : ranges) {
    int64_t first = 0;  // row of the part
    for (size_t i = 0; i < whole.parts.size(); ++i) {
      const TensorView& part = whole.parts[i];
      const kernels::ColumnOrder order = whole.orders.empty() ? nullptr : whole.orders[i];
      const int64_t begin = std::max(range.begin - first, int64_t{0}),
                    end = std::min(range.end - first, part.dim(0));
      first += part.dim(0);
      if (begin >= end) continue;
      // A copy of our own does not stay whole for the sake of a part of it.
      const bool copied = copies_.contains(part.data);
      const TensorView rows = part.rows(begin, end);
      if (order != nullptr && !cut.cols.empty()) {  // a rank's columns lie in any of the blocks
        const HostTensor plain = plain_in_order_of_x(rows, *order);
        out.parts.push_back(kept_columns(slot, plain.view, cols));
      } else {
        out.parts.push_back(!cut.cols.empty() || copied ? kept_columns(slot, rows, cols) : rows);
      }
      out.orders.push_back(cut.cols.empty() ? order : nullptr);
      out.rows += end - begin;
    }
  }
  for (const TensorView& part : whole.parts) drop_copy(part);
  if (!kernels::is_ordered(out)) out.orders.clear();
  return out;
}

}  // namespace sluice::models
