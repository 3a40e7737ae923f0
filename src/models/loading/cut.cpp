// What a rank keeps of a matrix: rows as views of the file, columns as copies, so that nothing else of it is read.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "models/loading/binder.h"

namespace sluice::models {

std::vector<float> kept_rows(const std::vector<float>& values, const Cut& cut) {
  if (cut.rows.empty()) return values;
  std::vector<float> kept;
  for (const dist::Range& range : cut.rows)
    kept.insert(kept.end(), values.begin() + range.begin, values.begin() + range.end);
  return kept;
}

TensorView Binder::kept_columns(WeightSlot slot, TensorView rows, dist::Range cols) {
  const int block = info(rows.dtype).block_elements;
  if (cols.begin % block != 0 || cols.end % block != 0) {
    fail(fmt::format("{}: {} is stored in blocks of {} columns, and a rank would get the columns {} to {}",
                     where(slot), rows.describe(), block, cols.begin, cols.end));
    return rows;
  }
  const auto whole = static_cast<size_t>(row_bytes(rows.dtype, rows.dim(1)));
  const auto skipped = static_cast<size_t>(row_bytes(rows.dtype, cols.begin));
  const auto width = static_cast<size_t>(row_bytes(rows.dtype, cols.size()));
  HostTensor copy = HostTensor::make(rows.dtype, {rows.dim(0), cols.size()});
  const auto* from = static_cast<const std::byte*>(rows.data) + skipped;
  for (size_t row = 0; row < static_cast<size_t>(rows.dim(0)); ++row)
    std::memcpy(copy.buffer.data() + row * width, from + row * whole, width);
  return keep(std::move(copy));
}

Weight Binder::kept(WeightSlot slot, Weight whole, const Cut& cut) {
  if ((cut.rows.empty() && !cut.cols) || !status_.ok()) return whole;
  const std::vector<dist::Range> ranges =
      cut.rows.empty() ? std::vector<dist::Range>{{0, whole.rows}} : cut.rows;
  Weight out = whole;
  out.parts.clear();
  out.rows = 0;
  out.cols = cut.cols ? cut.cols->size() : whole.cols;
  for (const dist::Range& range : ranges) {
    int64_t first = 0;  // row of the part
    for (const TensorView& part : whole.parts) {
      const int64_t begin = std::max(range.begin - first, int64_t{0}),
                    end = std::min(range.end - first, part.dim(0));
      first += part.dim(0);
      if (begin >= end) continue;
      // A copy of our own does not stay whole for the sake of a part of it.
      const bool copied = copies_.contains(part.data);
      const TensorView rows = part.rows(begin, end);
      out.parts.push_back(cut.cols || copied
                              ? kept_columns(slot, rows, cut.cols.value_or(dist::Range{0, whole.cols}))
                              : rows);
      out.rows += end - begin;
    }
  }
  for (const TensorView& part : whole.parts)
    if (const auto own = copies_.find(part.data); own != copies_.end()) {
      out_.owners[own->second].reset();
      copies_.erase(own);
    }
  return out;
}

}  // namespace sluice::models
