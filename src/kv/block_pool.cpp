#include "kv/block_pool.h"

#include "base/check.h"

namespace sluice::kv {

BlockPool::BlockPool(int capacity) : blocks_(static_cast<size_t>(capacity)) {
  for (int32_t i = 0; i < capacity; ++i) append(free_list_, i);
  free_ = capacity;
}

void BlockPool::append(List& list, int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  block.older = list.newest;
  block.newer = -1;
  (list.newest < 0 ? list.oldest : blocks_[static_cast<size_t>(list.newest)].newer) = index;
  list.newest = index;
}

void BlockPool::unlink(List& list, int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  (block.older < 0 ? list.oldest : blocks_[static_cast<size_t>(block.older)].newer) = block.newer;
  (block.newer < 0 ? list.newest : blocks_[static_cast<size_t>(block.newer)].older) = block.older;
  block.older = block.newer = -1;
}

std::optional<BlockPool::Taken> BlockPool::take(Ref holder) {
  if (obtainable() == 0) return std::nullopt;
  const bool evict = free_ == 0;
  Taken taken{BlockId{evict ? cached_list_.oldest : free_list_.oldest}, std::nullopt};
  if (evict) taken.evicted = at(taken.block).key;
  hold(taken.block, holder);
  forget(taken.block);
  return taken;
}

void BlockPool::hold(BlockId block, Ref holder) {
  if (holders(block) == 0) {
    const bool content = at(block).key.has_value();
    unlink(content ? cached_list_ : free_list_, block.value);
    --(content ? cached_ : free_);
  }
  const int now = ++at(block).holders[static_cast<size_t>(holder)];
  if (holder == Ref::Unreserved && now == 1) ++held_plainly_;
}

void BlockPool::unref(BlockId block, Ref holder) {
  SLUICE_CHECK_GT(holders(block, holder), 0);
  const int left = --at(block).holders[static_cast<size_t>(holder)];
  if (holder == Ref::Unreserved && left == 0) --held_plainly_;
  if (holders(block) > 0) return;
  const bool content = at(block).key.has_value();
  append(content ? cached_list_ : free_list_, block.value);
  ++(content ? cached_ : free_);
}

bool BlockPool::publish(BlockId block, const PrefixKey& key) {
  SLUICE_CHECK_GT(holders(block), 0);
  if (at(block).key || !index_.try_emplace(key, block).second) return false;
  at(block).key = key;
  ++changes_;
  return true;
}

void BlockPool::forget(BlockId block) {
  Block& entry = at(block);
  if (!entry.key) return;
  index_.erase(*entry.key);
  ++changes_;
  entry.key.reset();
  if (holders(block) > 0) return;
  unlink(cached_list_, block.value);
  --cached_;
  append(free_list_, block.value);
  ++free_;
}

std::optional<BlockId> BlockPool::find(const PrefixKey& key) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

void BlockPool::append_keys(std::vector<uint64_t>& out) const {
  for (const auto& [key, block] : index_) out.push_back(short_key(key));
}

int BlockPool::holders(BlockId block) const {
  return holders(block, Ref::Unreserved) + holders(block, Ref::Reserved);
}

void BlockPool::check() const {
  int free = 0, cached = 0, plainly = 0;
  size_t keys = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const BlockId id{static_cast<int32_t>(i)};
    const Block& block = blocks_[i];
    SLUICE_CHECK_GE(holders(id, Ref::Unreserved), 0);
    SLUICE_CHECK_GE(holders(id, Ref::Reserved), 0);
    plainly += holders(id, Ref::Unreserved) > 0;
    if (holders(id) == 0) ++(block.key ? cached : free);
    if (!block.key) continue;
    ++keys;
    const std::optional<BlockId> found = find(*block.key);
    SLUICE_CHECK(found.has_value());
    SLUICE_CHECK_EQ(*found, id);
  }
  SLUICE_CHECK_EQ(free, free_);
  SLUICE_CHECK_EQ(cached, cached_);
  SLUICE_CHECK_EQ(plainly, held_plainly_);
  SLUICE_CHECK_EQ(keys, index_.size());
  const auto length = [this](const List& list) {
    int count = 0;
    for (int32_t i = list.oldest; i >= 0; i = blocks_[static_cast<size_t>(i)].newer) ++count;
    return count;
  };
  SLUICE_CHECK_EQ(length(free_list_), free_);
  SLUICE_CHECK_EQ(length(cached_list_), cached_);
}

}  // namespace sluice::kv
