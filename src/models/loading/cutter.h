// What one rank of a tensor-parallel group keeps of each matrix and vector.
#pragma once

#include <cstdint>
#include <vector>

#include "models/loading/binder.h"
#include "models/placement.h"

namespace sluice::models {

// One rank alone keeps everything as it is.
struct Cutter {
  Share share;

  Cut rows(std::vector<Range> kept) const {
    return share.whole() ? Cut() : Cut{.rows = std::move(kept), .cols = {}};
  }
  // Of a matrix whose results are summed over the group.
  Cut cols(std::vector<Range> kept) const {
    return share.whole() ? Cut() : Cut{.rows = {}, .cols = std::move(kept), .bias = share.index == 0};
  }
  // Of `stacked` matrices of this height, one on the other.
  Cut stacked_rows(int64_t height, int stacked) const {
    const Range own = share.of(height);
    std::vector<Range> kept;
    for (int64_t i = 0; i < stacked; ++i) kept.push_back({i * height + own.begin, i * height + own.end});
    return rows(std::move(kept));
  }
};

inline Range scaled(Range range, int64_t factor, int64_t offset = 0) {
  return {offset + range.begin * factor, offset + range.end * factor};
}

}  // namespace sluice::models
