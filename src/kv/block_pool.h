// The blocks of one group on one tier: which are free, which are referred to, and which are kept for their
// content.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kv/prefix_key.h"
#include "request/block_move.h"

namespace sluice::kv {

// Who refers to a block: a sequence whose family holds a promise, or any other. Kept apart, so that blocks
// held by others can be limited to what no promise needs.
enum class Ref : uint8_t { Unreserved, Reserved };

// A block is free (no holder, no content), held (by tables), or cached (no holder, content published). Every
// operation is O(1).
class BlockPool {
 public:
  explicit BlockPool(int capacity = 0);

  struct Taken {
    BlockId block;
    std::optional<PrefixKey> evicted;  // the content that the block had until now
  };
  // A free block, else the cached one that was let go first. It then has one holder and no content.
  std::optional<Taken> take(Ref holder);

  void hold(BlockId block, Ref holder);
  // A block without holders stays cached where it has content, and is free where it has none.
  void unref(BlockId block, Ref holder);

  // Gives a held block a content by which it can be found. False where it has one, or another block has this
  // one.
  bool publish(BlockId block, const PrefixKey& key);
  // Takes the content away, if any.
  void forget(BlockId block);
  std::optional<BlockId> find(const PrefixKey& key) const;
  // How often contents came or went, and the short forms of those that there are.
  uint64_t changes() const { return changes_; }
  void append_keys(std::vector<uint64_t>& out) const;

  int capacity() const { return static_cast<int>(blocks_.size()); }
  int held() const { return capacity() - free_ - cached_; }
  int held_plainly() const { return held_plainly_; }  // by at least one plain holder
  int cached() const { return cached_; }
  int obtainable() const { return free_ + cached_; }
  int holders(BlockId block) const;
  bool has_content(BlockId block) const { return at(block).key.has_value(); }
  int holders(BlockId block, Ref holder) const { return at(block).holders[static_cast<size_t>(holder)]; }

  // Verifies lists, counts and index against each other.
  void check() const;

 private:
  struct Block {
    std::array<int32_t, 2> holders{};  // by Ref
    int32_t older = -1, newer = -1;    // neighbours in the list of free or of cached blocks
    std::optional<PrefixKey> key;
  };
  struct List {
    int32_t oldest = -1, newest = -1;
  };

  Block& at(BlockId block) { return blocks_[static_cast<size_t>(block.value)]; }
  const Block& at(BlockId block) const { return blocks_[static_cast<size_t>(block.value)]; }
  void append(List& list, int32_t index);
  void unlink(List& list, int32_t index);

  std::vector<Block> blocks_;
  List free_list_, cached_list_;
  int free_ = 0, cached_ = 0, held_plainly_ = 0;
  std::unordered_map<PrefixKey, BlockId, PrefixKeyHash> index_;
  uint64_t changes_ = 0;
};

}  // namespace sluice::kv
