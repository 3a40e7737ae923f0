// Cached KV blocks and states as another process may fetch or bring them. The engine's thread alone uses it, between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kv/kv_manager.h"
#include "sched/executor.h"

namespace sluice::engine {

class KvAccess {
 public:
  KvAccess(kv::KvManager& kv_manager, sched::Executor& executor)
      : kv_manager_(kv_manager), executor_(executor) {}

  // How much of a prompt is there.
  struct Known {
    int blocks = 0;  // leading ones, in every group that holds positions
    int usable =
        0;  // of these, that a prompt can go on behind: the state behind them is there, too, where layers keep any
  };
  Known known(std::span<const kv::PrefixKey> keys) const;
  // Appends the block's bytes, of all layers of the group. False: no tier has it, or it was lost.
  bool read(int group, const kv::PrefixKey& key, std::string& out);
  // Keeps the bytes as the block's content. False: there is no room. What is there already stays.
  // REQUIRES: as many bytes as the group's blocks have.
  bool write(int group, const kv::PrefixKey& key, std::span<const std::byte> bytes);
  // Blocks that could be taken before the first one brought would be evicted.
  int room(int group) const { return kv_manager_.available(group); }

 private:
  kv::KvManager& kv_manager_;
  sched::Executor& executor_;
};

// Called on the engine's thread, soon and after each step, until it returns false. Must neither block nor throw.
using KvTask = std::function<bool(KvAccess&)>;

// What KV blocks of two engines must have in common to be handed over.
struct KvLayout {
  std::string model;  // KvManagerOptions::model
  int block_size = 0;
  std::vector<int64_t> block_bytes;  // per group; empty: no blocks are handed over
  std::vector<int> windows;          // per group
  // Per group. A block of states is the one behind the last position of that block.
  std::vector<kv::KvGroup::Holds> holds;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
  // First block of the group that is needed to go on behind a prefix of so many blocks.
  int first_needed(size_t group, int blocks) const;
};

}  // namespace sluice::engine
