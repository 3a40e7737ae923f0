// State slots: the groups whose blocks hold the recurrent state of a sequence instead of the KV of positions.
#include <algorithm>
#include <limits>

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

// Where the states of a step go in any case: the last block border that it reaches, as a checkpoint, and its end.
std::vector<int> KvManager::state_entries(const Extent& extent) const {
  const int border = extent.known_end() / options_.block_size, last = blocks_for(extent.known_end());
  std::vector<int> entries;
  if (border > extent.begin / options_.block_size) entries.push_back(border - 1);
  if (last > border) entries.push_back(last - 1);
  return entries;
}

// Checkpoints are left where later prompts are likely to part from this one: before the ends of its messages, at its own
// last border, where it parts from what others have published, and every `interval` blocks, so that parting anywhere else
// costs no more than an interval. A prompt's own checkpoints take a quarter of the slots at most.
void KvManager::mark_checkpoints(Sequence& sequence, std::span<const Token> tokens, int branch) const {
  const int size = options_.block_size, blocks = static_cast<int>(tokens.size()) / size;
  int slots = 0;
  for (const KvGroup& group : options_.groups)
    if (group.holds == KvGroup::Holds::State) slots = group.blocks[0];
  const int most = std::max(1, slots / 4);
  sequence.interval = std::max(std::max(1, options_.checkpoint_interval / size), (blocks + most - 1) / most);
  sequence.marks.clear();
  for (size_t i = 0; i < tokens.size() && !options_.message_ends.empty(); ++i) {
    const std::vector<Token>& ends = options_.message_ends;
    if (std::find(ends.begin(), ends.end(), tokens[i]) != ends.end())
      sequence.marks.push_back((static_cast<int>(i) + 1) / size - 1);
  }
  sequence.marks.insert(sequence.marks.end(),
                        {branch - 1, blocks - 1, (static_cast<int>(tokens.size()) - 1) / size - 1});
  std::sort(sequence.marks.begin(), sequence.marks.end());
  sequence.marks.erase(std::unique(sequence.marks.begin(), sequence.marks.end()), sequence.marks.end());
}

bool KvManager::is_checkpoint(const Sequence& sequence, int block) const {
  if (sequence.interval > 0 && (block + 1) % sequence.interval == 0) return true;
  return std::binary_search(sequence.marks.begin(), sequence.marks.end(), block);
}

// The further checkpoints of a step, the last ones where there are not slots for all. They are taken as long as every
// sequence that runs could still have the two slots of its next step: nobody is preempted for them.
std::vector<int> KvManager::extra_entries(int group, const Sequence& sequence, const Extent& extent,
                                          int missing) const {
  const int border = extent.known_end() / options_.block_size;
  std::vector<int> entries;
  if (!options_.prefix_cache || sequence.promise) return entries;
  const int spare = spare_slots(group) - missing - extent.drafts;
  for (int block = border - 2; block >= extent.begin / options_.block_size; --block)
    if (static_cast<int>(entries.size()) < spare && is_checkpoint(sequence, block)) entries.push_back(block);
  std::reverse(entries.begin(), entries.end());
  return entries;
}

// Slots that nobody takes in the next step of every sequence, each of which may need two.
int KvManager::spare_slots(int group) const {
  return room(group, Ref::Unreserved) - 2 * static_cast<int>(sequences_.size());
}

int KvManager::most_drafts() const {
  int most = std::numeric_limits<int>::max();
  for (int group = 0; group < groups(); ++group)
    if (is_state(group)) most = std::min(most, std::max(0, spare_slots(group)));
  return most;
}

// A border that the sequence has passed is of use no more, unless it is a checkpoint of its prompt or was somebody's before:
// an answer leaves one state and not one for each of its blocks.
void KvManager::drop_if_passed(int group, const Sequence& sequence, int block) {
  const BlockId slot = sequence.tables[static_cast<size_t>(group)][static_cast<size_t>(block)];
  if (slot == request::kNoBlock || block < sequence.attached || is_checkpoint(sequence, block)) return;
  if (!shared(group, slot)) pool(group, request::Tier::Device).forget(slot);
}

int KvManager::missing_slots(int group, const Sequence& sequence, const Extent& extent) const {
  const std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  int present = 0;
  for (auto i = static_cast<size_t>(extent.begin / options_.block_size); i < table.size(); ++i)
    present += table[i] != request::kNoBlock && !shared(group, table[i]);
  return std::max(0, static_cast<int>(state_entries(extent).size()) - present);
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
  std::vector<int> entries = state_entries(extent);
  const int missing = std::max(0, static_cast<int>(entries.size()) - static_cast<int>(own.size()));
  const std::vector<int> extra = extra_entries(group, sequence, extent, missing);
  entries.insert(entries.begin(), extra.begin(), extra.end());
  counters_.checkpoints += extra.size();
  while (own.size() > entries.size()) {
    slots.unref(own.back(), sequence.holder());
    own.pop_back();
  }
  table.resize(first);
  table.resize(static_cast<size_t>(blocks_for(extent.known_end())), request::kNoBlock);
  for (size_t i = 0; i < entries.size(); ++i) {
    const BlockId slot = i < own.size() ? own[i] : take(group, request::Tier::Device, sequence.holder());
    table[static_cast<size_t>(entries[i])] = slot;
    if (i > 0 || !start) continue;
    moves_.push_back({group, {request::Tier::Device, *start}, {request::Tier::Device, slot}});
    ++counters_.copied;
  }
  if (start) slots.unref(*start, sequence.holder());
  for (int i = 0; i < extent.drafts; ++i)
    table.push_back(take(group, request::Tier::Device, Ref::Unreserved));
}

void KvManager::drop_drafts(Sequence& sequence) {
  for (int group = 0; group < groups() && sequence.drafts.count > 0; ++group) {
    if (!is_state(group)) continue;
    std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
    const size_t first = table.size() - static_cast<size_t>(sequence.drafts.count);
    for (size_t i = first; i < table.size(); ++i) unref_entry(group, sequence, i);
    table.resize(first);
  }
  sequence.drafts = {};
}

// The state behind the last accepted draft becomes that of the sequence, and those at borders before it its checkpoints; of
// a promise the last border alone, beside what the next step starts from. The others are given back.
void KvManager::settle_states(int group, Sequence& sequence, int tokens) {
  const auto index = static_cast<size_t>(group);
  const auto [begin, count] = sequence.drafts;
  const int size = options_.block_size;
  std::vector<BlockId>& table = sequence.tables[index];
  if (count == 0) {
    SLUICE_CHECK_LE(static_cast<int>(table.size()), blocks_for(tokens));
    return;
  }
  SLUICE_CHECK(begin <= tokens && tokens <= begin + count);
  std::vector<request::Place> behind;  // each draft
  for (size_t i = table.size() - static_cast<size_t>(count); i < table.size(); ++i)
    behind.push_back({sequence.out() ? sequence.tiers[index][i] : request::Tier::Device, table[i]});
  const auto resize = [&](int entries) {
    table.resize(static_cast<size_t>(entries), request::kNoBlock);
    if (sequence.out()) sequence.tiers[index].resize(table.size(), request::Tier::Device);
  };
  resize(static_cast<int>(table.size()) - count);
  const Ref holder = sequence.out() ? Ref::Unreserved : sequence.holder();
  const int last = (begin - 1) / size;  // entry of the known tokens
  if (tokens > begin && begin % size != 0) {
    const request::Tier tier =
        sequence.out() ? sequence.tiers[index][static_cast<size_t>(last)] : request::Tier::Device;
    pool(group, tier).unref(table[static_cast<size_t>(last)], holder);
    table[static_cast<size_t>(last)] = request::kNoBlock;
  }
  resize(blocks_for(tokens));
  for (int i = 0; i < count; ++i) {
    const int position = begin + i + 1;
    const request::Place place = behind[static_cast<size_t>(i)];
    const bool border = position % size == 0 && (!sequence.promise || position + size > tokens);
    if (position == tokens || (position < tokens && border)) {
      const auto entry = static_cast<size_t>((position - 1) / size);
      pool(group, place.tier).hold(place.block, holder);
      table[entry] = place.block;
      if (sequence.out()) sequence.tiers[index][entry] = place.tier;
    }
    pool(group, place.tier).unref(place.block, Ref::Unreserved);
  }
  if (sequence.promise) give_back(group, sequence, first_visible(group, begin));
}

}  // namespace sluice::kv
