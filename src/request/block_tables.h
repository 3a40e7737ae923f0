// The block tables of a step's work, as the KV manager had them when the step was planned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "request/block_move.h"

namespace sluice::request {

// [work, group]: position p of the work's sequence lies in of(work, group)[p / block size]. Plain data; built by add() in
// the order of work, then group.
//
// In a group of states an entry is the slot of the state behind the last position of its block that ran; behind the entries
// of the known tokens stands a slot for each draft of the work, see StateSlots.
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

// Where a work that runs [begin, end) finds and leaves the state of its sequence: every slot that the table has for blocks
// of the known tokens gets the state behind its block's last position that ran, and every slot of a draft the state behind
// that draft, so that whichever of them are accepted, the state behind the last one is there.
struct StateSlots {
  struct Save {
    int position;  // the state behind so many positions ...
    BlockId slot;  // ... goes here
    friend bool operator==(const Save&, const Save&) = default;
  };
  BlockId from = kNoBlock;  // the state behind position begin - 1; none: begin is 0, the state is empty
  std::vector<Save> saves;  // by ascending position, the last at `end`; one may overwrite `from`

  // The last `drafts` positions hold drafts: as many as the slots were taken for, or fewer.
  static StateSlots of(std::span<const BlockId> table, int begin, int end, int block_size, int drafts = 0) {
    StateSlots slots;
    const int known = end - drafts, first = begin / block_size, last = (known + block_size - 1) / block_size;
    for (int i = first; i < last; ++i)
      if (const BlockId slot = table[static_cast<size_t>(i)]; slot != kNoBlock)
        slots.saves.push_back({std::min(known, (i + 1) * block_size), slot});
    for (int i = 0; i < drafts; ++i)
      slots.saves.push_back({known + i + 1, table[static_cast<size_t>(last + i)]});
    if (begin % block_size != 0) {
      slots.from = slots.saves.front().slot;
    } else if (begin > 0) {
      slots.from = table[static_cast<size_t>(first) - 1];
    }
    return slots;
  }
  // At the end of the work.
  BlockId end() const { return saves.back().slot; }
};

}  // namespace sluice::request
