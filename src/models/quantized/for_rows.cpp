#include "models/quantized/for_rows.h"

#include <algorithm>

#include "base/system/cores.h"

namespace sluice::models {

namespace {

constexpr int64_t kElementsOfOneThread = int64_t{1} << 20;  // some milliseconds

}  // namespace

void for_rows(int64_t rows, int64_t cols, int64_t grain, FunctionRef<void(int64_t, int64_t)> range) {
  static const int most = compute_cores().threads;
  const int64_t grains = (rows + grain - 1) / grain;
  const int64_t threads = std::min({int64_t{most}, grains, rows * cols / kElementsOfOneThread});
  if (threads <= 1) return range(0, rows);
  ThreadPool pool(static_cast<int>(threads));
  pool.for_ranges(grains, 1,
                  [&](int64_t first, int64_t end) { range(first * grain, std::min(rows, end * grain)); });
}

}  // namespace sluice::models
