// State slots: the groups whose blocks hold the recurrent state of a sequence instead of the KV of positions.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice::kv {

bool KvManager::keeps_states() const {
  return std::any_of(options_.groups.begin(), options_.groups.end(),
                     [](const KvGroup& group) { return group.holds == KvGroup::Holds::State; });
}

bool KvManager::is_state(int group) const {
  return options_.groups[static_cast<size_t>(group)].holds == KvGroup::Holds::State;
}

// Where the states of a step go: the last block border that it reaches, as a checkpoint, and its end.
KvManager::StateEntries KvManager::state_entries(const Extent& extent) const {
  const int border = extent.end / options_.block_size, last = blocks_for(extent.end);
  StateEntries entries;
  if (border > extent.begin / options_.block_size) entries.push(border - 1);
  if (last > border) entries.push(last - 1);
  return entries;
}

int KvManager::missing_slots(int group, const Sequence& sequence, const Extent& extent) const {
  const std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  int present = 0;
  for (auto i = static_cast<size_t>(extent.begin / options_.block_size); i < table.size(); ++i)
    present += table[i] != request::kNoBlock && !shared(group, table[i]);
  return std::max(0, state_entries(extent).count - present);
}

// The slots that the sequence has for blocks of the step move to the entries that the step writes. Where the step begins
// inside of a block, the first of them holds the state that it starts from, and stays first.
void KvManager::grow_states(int group, Sequence& sequence, const Extent& extent) {
  std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  BlockPool& slots = pool(group, request::Tier::Device);
  const auto first = static_cast<size_t>(extent.begin / options_.block_size);
  SLUICE_CHECK_LE(first, table.size() + (extent.begin % options_.block_size == 0 ? 0u : 1u));
  std::vector<BlockId> own;
  std::optional<BlockId> start;  // shared, and to be copied
  for (size_t i = first; i < table.size(); ++i) {
    if (table[i] == request::kNoBlock) continue;
    const bool starts = own.empty() && !start && extent.begin % options_.block_size != 0;
    if (!shared(group, table[i])) {
      slots.forget(table[i]);  // its content is about to change
      own.push_back(table[i]);
    } else if (starts) {
      start = table[i];
    } else {
      slots.unref(table[i], sequence.holder());
    }
  }
  const StateEntries entries = state_entries(extent);
  while (own.size() > static_cast<size_t>(entries.count)) {
    slots.unref(own.back(), sequence.holder());
    own.pop_back();
  }
  table.resize(first);
  table.resize(static_cast<size_t>(blocks_for(extent.end)), request::kNoBlock);
  for (size_t i = 0; i < static_cast<size_t>(entries.count); ++i) {
    const BlockId slot = i < own.size() ? own[i] : take(group, request::Tier::Device, sequence.holder());
    table[static_cast<size_t>(entries.index[i])] = slot;
    if (i > 0 || !start) continue;
    moves_.push_back({group, {request::Tier::Device, *start}, {request::Tier::Device, slot}});
    ++counters_.copied;
  }
  if (start) slots.unref(*start, sequence.holder());
}

}  // namespace sluice::kv
