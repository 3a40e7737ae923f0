// Which numbers of tokens keep a GPU's multiprocessors equally busy: a GEMM is cut into tiles, one for each multiprocessor at a
// time, and the last turn is rarely full. A matrix of 4,096 rows with 1,152 tokens has 144 tiles, two turns of 132 multiprocessors
// that are half idle; with 1,024 tokens it has 128.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace sluice::kernels {

class EvenStep {
 public:
  static constexpr int64_t kTileTokens = 128, kTileRows = 256;
  static constexpr int64_t kLeast = 512, kMost = 4096;

  // A matrix that every token of a step is multiplied with.
  void add(int64_t rows, int64_t cols) { cols_[(rows + kTileRows - 1) / kTileRows] += cols; }

  // The fewest tokens, from kLeast on, that come within a twentieth of the best use of `processors`; 0: no matrix is known.
  int64_t tokens(int64_t processors) const {
    if (cols_.empty() || processors <= 0) return 0;
    double best = 0;
    for (int64_t count = kLeast; count <= kMost; count += kTileTokens)
      best = std::max(best, share(count, processors));
    int64_t count = kLeast;
    while (share(count, processors) < 0.95 * best) count += kTileTokens;
    return count;
  }

  // Of the multiprocessors' time that goes into tiles of `tokens` tokens.
  double share(int64_t tokens, int64_t processors) const {
    int64_t used = 0, taken = 0;
    for (const auto& [row_tiles, cols] : cols_) {
      const int64_t tiles = row_tiles * ((tokens + kTileTokens - 1) / kTileTokens);
      used += tiles * cols;
      taken += (tiles + processors - 1) / processors * processors * cols;
    }
    return static_cast<double>(used) / static_cast<double>(taken);
  }

 private:
  std::map<int64_t, int64_t> cols_;  // of all matrices with so many tiles of rows
};

}  // namespace sluice::kernels
