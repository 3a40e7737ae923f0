#include "kv/kv_manager.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace sluice::kv {

KvManager::KvManager(KvManagerOptions options) : options_(std::move(options)) {
  SLUICE_CHECK_GT(options_.block_size, 0);
  SLUICE_CHECK(!options_.groups.empty());
  for (const KvGroup& group : options_.groups) SLUICE_CHECK_GE(group.window, 0);
  forget_all();
}

void KvManager::forget_all() {
  SLUICE_CHECK(sequences_.empty());
  groups_.clear();
  groups_.resize(options_.groups.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t tier = 0; tier < request::kTiers; ++tier) {
      groups_[group].pools[tier] = BlockPool(options_.groups[group].blocks[tier]);
    }
  }
  moves_.clear();
}

KvManager::Sequence& KvManager::resident(SeqId seq) {
  return const_cast<Sequence&>(std::as_const(*this).resident(seq));
}

const KvManager::Sequence& KvManager::resident(SeqId seq) const {
  const auto found = sequences_.find(seq);
  SLUICE_CHECK(found != sequences_.end());
  SLUICE_CHECK(!found->second.out());
  return found->second;
}

BlockPool& KvManager::pool(int group, request::Tier tier) {
  return groups_[static_cast<size_t>(group)].pools[static_cast<size_t>(tier)];
}

const BlockPool& KvManager::pool(int group, request::Tier tier) const {
  return groups_[static_cast<size_t>(group)].pools[static_cast<size_t>(tier)];
}

int KvManager::first_visible(int group, int position) const {
  if (is_state(group)) return std::max(0, position - 1) / options_.block_size;
  const int window = options_.groups[static_cast<size_t>(group)].window;
  if (window == 0) return 0;
  return std::max(0, position - window + 1) / options_.block_size;
}

int KvManager::first_kept(int group, const Sequence& sequence, int position) const {
  const int visible = first_visible(group, position);
  if (!is_state(group)) return visible;
  // A promise has slots for one border before the one that is needed, and no more; neither has a pool that is used up.
  const bool scarce = room(group, sequence.holder()) <= 2 * static_cast<int>(sequences_.size());
  if (sequence.promise || scarce || !options_.prefix_cache) return std::max(0, visible - 1);
  return std::min(visible, sequence.published);
}

// All blocks that are ever held are held plainly or lie within a promise, so keeping the plain ones below
// what is not promised means that a promise can always be kept.
int KvManager::room(int group, Ref holder) const {
  const BlockPool& device = pool(group, request::Tier::Device);
  if (holder == Ref::Reserved) return device.obtainable();
  const int unpromised = device.capacity() - groups_[static_cast<size_t>(group)].promised;
  return std::min(device.obtainable(), unpromised - device.held_plainly());
}

void KvManager::open(SeqId seq, const Input& input) {
  const auto [entry, fresh] = sequences_.try_emplace(seq);
  SLUICE_CHECK(fresh);
  entry->second.tables.resize(groups_.size());
  entry->second.given_back.resize(groups_.size());
  const bool contrast = input.request != nullptr && request::uses_contrast_model(*input.request);
  entry->second.root = root_key(options_.model, input.salt, input.rope_set, contrast);
  entry->second.request = input.request;
}

bool KvManager::reserve(SeqId seq, const Extent& extent) {
  Sequence& sequence = resident(seq);
  SLUICE_CHECK_LE(extent.begin, extent.end);
  drop_drafts(sequence);
  for (int group = 0; group < groups(); ++group)
    give_back(group, sequence, first_kept(group, sequence, extent.begin));
  for (int group = 0; group < groups(); ++group) {
    const int missing = missing_blocks(group, sequence, extent), drafts = is_state(group) ? extent.drafts : 0;
    if (missing > room(group, sequence.holder())) return false;
    const int beside = sequence.promise ? 0 : missing;  // what a promise covers takes nothing from the others
    if (drafts > 0 && drafts > room(group, Ref::Unreserved) - beside) return false;
  }
  for (int group = 0; group < groups(); ++group) grow(group, sequence, extent);
  if (keeps_states()) sequence.drafts = {extent.known_end(), extent.drafts};
  return true;
}

Ref KvManager::holder_of(int group, const Sequence& sequence, size_t entry) const {
  const size_t entries = sequence.tables[static_cast<size_t>(group)].size();
  const bool draft = is_state(group) && entry + static_cast<size_t>(sequence.drafts.count) >= entries;
  return draft || sequence.out() ? Ref::Unreserved : sequence.holder();
}

void KvManager::unref_entry(int group, const Sequence& sequence, size_t entry) {
  const auto index = static_cast<size_t>(group);
  const request::Tier tier = sequence.out() ? sequence.tiers[index][entry] : request::Tier::Device;
  pool(group, tier).unref(sequence.tables[index][entry], holder_of(group, sequence, entry));
}

void KvManager::give_back(int group, Sequence& sequence, int first) {
  std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  int& given = sequence.given_back[static_cast<size_t>(group)];
  for (first = std::min(first, static_cast<int>(table.size())); given < first; ++given) {
    BlockId& block = table[static_cast<size_t>(given)];
    if (is_state(group)) drop_if_passed(group, sequence, given);
    if (block != request::kNoBlock) pool(group, request::Tier::Device).unref(block, sequence.holder());
    block = request::kNoBlock;
  }
}

bool KvManager::shared(int group, BlockId block) const {
  return pool(group, request::Tier::Device).holders(block) > 1;
}

int KvManager::missing_blocks(int group, const Sequence& sequence, const Extent& extent) const {
  if (is_state(group)) return missing_slots(group, sequence, extent);
  const bool windowed = options_.groups[static_cast<size_t>(group)].window > 0;
  const std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  const int present = static_cast<int>(table.size());
  int missing = std::max(0, blocks_for(windowed ? extent.end : std::max(extent.end, extent.total)) - present);
  const int written = std::min(present, blocks_for(extent.end));
  for (int i = extent.begin / options_.block_size; i < written; ++i) {
    missing += shared(group, table[static_cast<size_t>(i)]);
  }
  return missing;
}

void KvManager::grow(int group, Sequence& sequence, const Extent& extent) {
  if (is_state(group)) return grow_states(group, sequence, extent);
  const bool windowed = options_.groups[static_cast<size_t>(group)].window > 0;
  std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  const int present = static_cast<int>(table.size());
  const int written = std::min(present, blocks_for(extent.end));
  for (int i = extent.begin / options_.block_size; i < written; ++i) {
    BlockId& block = table[static_cast<size_t>(i)];
    if (!shared(group, block)) {
      pool(group, request::Tier::Device).forget(block);  // its content is about to change
      continue;
    }
    const BlockId own = take(group, request::Tier::Device, sequence.holder());
    if (i * options_.block_size < extent.begin) {
      moves_.push_back({group, {request::Tier::Device, block}, {request::Tier::Device, own}});
      ++counters_.copied;
    }
    pool(group, request::Tier::Device).unref(block, sequence.holder());
    block = own;
  }
  const int wanted = blocks_for(windowed ? extent.end : std::max(extent.end, extent.total));
  while (static_cast<int>(table.size()) < wanted) {
    table.push_back(take(group, request::Tier::Device, sequence.holder()));
  }
}

bool KvManager::reserve_capacity(std::span<const SeqId> family, const Demand& demand) {
  auto promise = std::make_shared<Promise>();
  for (int group = 0; group < groups(); ++group) {
    const int blocks = peak_blocks(group, demand);
    if (blocks > pool(group, request::Tier::Device).capacity() -
                     groups_[static_cast<size_t>(group)].promised -
                     pool(group, request::Tier::Device).held_plainly()) {
      return false;
    }
    promise->blocks.push_back(blocks);
  }
  for (size_t group = 0; group < groups_.size(); ++group) groups_[group].promised += promise->blocks[group];
  promise->members = static_cast<int>(family.size());
  for (const SeqId seq : family) {
    Sequence& sequence = sequences_.at(seq);
    SLUICE_CHECK(!sequence.promise);
    for (const std::vector<BlockId>& table : sequence.tables) SLUICE_CHECK(sequence.out() || table.empty());
    sequence.promise = promise;
  }
  return true;
}

void KvManager::publish(SeqId seq, std::span<const Token> accepted) {
  if (!options_.prefix_cache) return;
  Sequence& sequence = resident(seq);
  extend_keys(sequence, accepted);
  const int full = static_cast<int>(accepted.size()) / options_.block_size;
  retract(sequence, 0, full);
  for (; sequence.published < full; ++sequence.published) {
    const auto index = static_cast<size_t>(sequence.published);
    for (int group = 0; group < groups(); ++group) {
      const BlockId block = sequence.tables[static_cast<size_t>(group)][index];
      if (block != request::kNoBlock) pool(group, request::Tier::Device).publish(block, sequence.keys[index]);
    }
  }
}

void KvManager::invalidate(SeqId seq) {
  Sequence& sequence = sequences_.at(seq);
  if (sequence.out()) return;
  for (int group = 0; group < groups(); ++group) {
    for (const BlockId block : sequence.tables[static_cast<size_t>(group)]) {
      if (block != request::kNoBlock) pool(group, request::Tier::Device).forget(block);
    }
  }
}

void KvManager::retire_content(const Sequence& sequence, size_t index) {
  const PrefixKey& key = sequence.keys[index];
  const auto published_too = [&](const auto& entry) {
    const Sequence& other = entry.second;
    return &other != &sequence && static_cast<size_t>(other.published) > index && other.keys[index] == key;
  };
  if (std::any_of(sequences_.begin(), sequences_.end(), published_too)) return;
  for (int group = 0; group < groups(); ++group) {
    for (const request::Tier tier : {request::Tier::Device, request::Tier::Host, request::Tier::Disk}) {
      if (const std::optional<BlockId> block = pool(group, tier).find(key)) pool(group, tier).forget(*block);
    }
  }
}

void KvManager::truncate(SeqId seq, int tokens) {
  SLUICE_CHECK_GE(tokens, 0);
  Sequence& sequence = sequences_.at(seq);
  const auto full = static_cast<size_t>(tokens / options_.block_size);
  const auto kept = static_cast<size_t>(blocks_for(tokens));
  for (size_t i = full; i < static_cast<size_t>(sequence.published); ++i) retire_content(sequence, i);
  for (int group = 0; group < groups(); ++group) {
    if (is_state(group)) {
      settle_states(group, sequence, tokens);
      continue;
    }
    const auto index = static_cast<size_t>(group);
    std::vector<BlockId>& table = sequence.tables[index];
    SLUICE_CHECK_LE(sequence.given_back[index], first_visible(group, tokens));
    for (size_t i = table.size(); i-- > kept;) unref_entry(group, sequence, i);
    table.resize(std::min(table.size(), kept));
    if (sequence.out()) sequence.tiers[index].resize(table.size());
  }
  sequence.drafts = {};
  retract(sequence, static_cast<int>(full), sequence.announced);
  sequence.keys.resize(std::min(sequence.keys.size(), full));
  sequence.published = std::min(sequence.published, static_cast<int>(full));
  sequence.announced = std::min(sequence.announced, static_cast<int>(full));
}

void KvManager::fork(SeqId parent, SeqId child, int tokens) {
  const auto [entry, fresh] = sequences_.try_emplace(child);
  SLUICE_CHECK(fresh);
  const Sequence& from = resident(parent);
  Sequence& to = entry->second;
  SLUICE_CHECK_EQ(from.drafts.count, 0);
  const auto blocks = static_cast<size_t>(blocks_for(tokens));
  const auto full = static_cast<size_t>(tokens / options_.block_size);
  to.root = from.root;
  to.request = from.request;
  to.keys.assign(from.keys.begin(),
                 from.keys.begin() + static_cast<ptrdiff_t>(std::min(full, from.keys.size())));
  to.published = std::min(from.published, static_cast<int>(full));
  to.promise = from.promise;
  if (to.promise) ++to.promise->members;
  to.given_back = from.given_back;
  to.marks = from.marks;
  to.interval = from.interval;
  to.attached = from.attached;
  for (int group = 0; group < groups(); ++group) {
    const std::vector<BlockId>& table = from.tables[static_cast<size_t>(group)];
    SLUICE_CHECK_LE(blocks, table.size());
    int& given = to.given_back[static_cast<size_t>(group)];
    given = std::min(given, static_cast<int>(blocks));
    SLUICE_CHECK_LE(given, first_visible(group, tokens));
    to.tables.emplace_back(table.begin(), table.begin() + static_cast<ptrdiff_t>(blocks));
    for (const BlockId block : to.tables.back()) {
      if (block != request::kNoBlock) pool(group, request::Tier::Device).hold(block, to.holder());
    }
  }
}

void KvManager::unref_all(Sequence& sequence) {
  retract(sequence, 0, sequence.announced);
  for (int group = 0; group < groups(); ++group) {
    const std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
    // Last blocks first: the cache evicts in this order, and a block is useless without those before it. A state needs no
    // other one, and the last saves the most.
    for (size_t n = 0; n < table.size(); ++n) {
      const size_t i = is_state(group) ? n : table.size() - 1 - n;
      if (table[i] != request::kNoBlock) unref_entry(group, sequence, i);
    }
  }
}

void KvManager::release(SeqId seq) {
  const auto found = sequences_.find(seq);
  SLUICE_CHECK(found != sequences_.end());
  Sequence& sequence = found->second;
  unref_all(sequence);
  if (sequence.promise && --sequence.promise->members == 0) {
    for (size_t group = 0; group < groups_.size(); ++group) {
      groups_[group].promised -= sequence.promise->blocks[group];
    }
  }
  sequences_.erase(found);
}

void KvManager::rewind(SeqId seq) {
  Sequence& sequence = resident(seq);
  unref_all(sequence);
  for (std::vector<BlockId>& table : sequence.tables) table.clear();
  sequence.given_back.assign(groups_.size(), 0);
  sequence.published = sequence.announced = sequence.attached = 0;
  sequence.drafts = {};
}

std::vector<request::BlockMove> KvManager::take_moves() {
  return std::exchange(moves_, {});
}

std::span<const BlockId> KvManager::table(SeqId seq, int group) const {
  return resident(seq).tables[static_cast<size_t>(group)];
}

int KvManager::peak_blocks(int group, const Demand& demand) const {
  const int shared = demand.shared / options_.block_size;
  const int each = blocks_for(demand.total);
  const int64_t unwindowed = shared + int64_t{demand.sequences} * (each - shared);
  int64_t peak = unwindowed;
  if (is_state(group)) {
    // What it starts from and the checkpoint before that, the last border and the end.
    peak = std::min<int64_t>(unwindowed, int64_t{demand.sequences} * 4);
  } else if (const int window = options_.groups[static_cast<size_t>(group)].window; window > 0) {
    // [begin - window + 1, end) with end - begin <= chunk, at any alignment
    const int64_t seen = int64_t{window} - 1 + demand.chunk;
    const int64_t widest = (seen + options_.block_size - 2) / options_.block_size + 1;
    peak = std::min(unwindowed, demand.sequences * widest);
  }
  return static_cast<int>(std::min<int64_t>(peak, std::numeric_limits<int>::max() / 2));
}

bool KvManager::could_ever_hold(const Demand& demand) const {
  for (int group = 0; group < groups(); ++group) {
    if (peak_blocks(group, demand) > capacity(group)) return false;
  }
  return true;
}

GroupUsage KvManager::usage(int group) const {
  const BlockPool& device = pool(group, request::Tier::Device);
  return {.blocks = device.capacity(),
          .used = device.held(),
          .cached = device.cached(),
          .promised = groups_[static_cast<size_t>(group)].promised,
          .host_used = pool(group, request::Tier::Host).held(),
          .disk_used = pool(group, request::Tier::Disk).held()};
}

BlockUse KvManager::use(int group, BlockId block) const {
  const BlockPool& device = pool(group, request::Tier::Device);
  return {.holders = device.holders(block), .kept = device.has_content(block)};
}

}  // namespace sluice::kv
