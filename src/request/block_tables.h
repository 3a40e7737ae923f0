// The block tables of a step's work, as the KV manager had them when the step was planned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace sluice::request {

// [work, group]: position p of the work's sequence lies in of(work, group)[p / block size]. Plain data; built by add() in
// the order of work, then group.
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

}  // namespace sluice::request
