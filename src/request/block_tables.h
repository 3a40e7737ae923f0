// The block tables of a step's work, as the KV manager had them when the step was planned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "request/block_move.h"

namespace sluice::request {

// [work, group]: position p of the work's sequence lies in of(work, group)[p / block size]. Plain data; built by add() in
// the order of work, then group.
//
// In a group of states an entry is the slot of the state behind the last position of its block that ran, see StateSlots.
struct BlockTables {
  int groups = 0;
  std::vector<BlockId> blocks;  // of all tables, one behind the other
  std::vector<uint32_t> ends;   // of each table, in `blocks`

  void add(std::span<const BlockId> table) {
    blocks.insert(blocks.end(), table.begin(), table.end());
    ends.push_back(static_cast<uint32_t>(blocks.size()));
  }
  std::span<const BlockId> of(size_t work, int group) const {
    const size_t index = work * static_cast<size_t>(groups) + static_cast<size_t>(group);
    const uint32_t begin = index == 0 ? 0 : ends[index - 1];
    return std::span(blocks).subspan(begin, ends[index] - begin);
  }
  friend bool operator==(const BlockTables&, const BlockTables&) = default;
};

// Where a work that runs [begin, end) finds and leaves the state of its sequence.
struct StateSlots {
  BlockId from = kNoBlock;  // the state behind position begin - 1; none: begin is 0, the state is empty
  BlockId border =
      kNoBlock;  // gets the state behind the last block border in (begin, end]; none: there is no such border
  BlockId end = kNoBlock;  // gets the state behind position end - 1, where that is no block border

  // `from` may be one of the others: it is then overwritten.
  static StateSlots of(std::span<const BlockId> table, int begin, int end, int block_size) {
    StateSlots slots;
    const auto entry = [&](int index) { return table[static_cast<size_t>(index)]; };
    const int first = begin / block_size, border = end / block_size,
              last = (end + block_size - 1) / block_size;
    if (begin % block_size == 0) {
      if (begin > 0) slots.from = entry(first - 1);
    } else {
      int at = first;
      while (at + 1 < last && entry(at) == kNoBlock) ++at;
      slots.from = entry(at);
    }
    if (border > first) slots.border = entry(border - 1);
    if (last > border) slots.end = entry(last - 1);
    return slots;
  }
};

}  // namespace sluice::request
