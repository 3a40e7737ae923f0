// Rows of keys or values as attention reads them. Included by the level files only.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

// Rows whose memory is asked for ahead of their use: they lie one key apart, too far for the hardware to guess.
constexpr int64_t kRowsAhead = 24;

// Cuts [at, count) into tiles of N, the last ones smaller, and calls tile<size>(begin) for each. Heads that share a kv head
// are often three or six: a smaller tile still reads each key once for all of them.
template <int N, class Tile>
void for_tiles(int64_t at, int64_t count, const Tile& tile) {
  for (; at + N <= count; at += N) tile.template operator()<N>(at);
  if constexpr (N > 1) for_tiles<N - 1>(at, count, tile);
}

inline void prefetch_rows(const KvRows& rows, int64_t first, int64_t count, int64_t element_bytes) {
  if (first + count > rows.count) return;
  for (int64_t i = first; i < first + count; ++i) {
    for (int64_t byte = 0; byte < rows.width * element_bytes; byte += 64)
      __builtin_prefetch(rows.rows[i] + byte);
  }
}

// The first vector of a row from column `at` on; `left` columns are left.
template <class I, class T>
typename I::F load_columns(const uint8_t* row, int64_t at, int64_t left) {
  const uint8_t* from = row + at * T::kBytes;
  return left >= I::kWidth ? T::load(from) : load_some<I, T>(from, left);
}

}  // namespace
}  // namespace sluice::kernels::cpu
