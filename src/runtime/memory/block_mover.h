// Carries out the KV manager's block moves between KV memory, host memory and a file.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kv/kv_manager.h"
#include "runtime/memory/kv_memory.h"

namespace sluice::runtime {

struct TierOptions {
  std::vector<int> host_blocks;  // per group
  std::vector<int> disk_blocks;  // per group
  std::string disk_folder;       // where the file of the disk tier lies; it has no name there
};

// Blocks on disk carry a checksum that stays in memory; a block that does not match it when it comes back, or
// cannot be read, is lost, and whatever it was moved to must not be used.
class BlockMover {
 public:
  static Result<std::unique_ptr<BlockMover>> make(KvMemory& memory, const TierOptions& options);
  ~BlockMover();

  void run(std::span<const request::BlockMove> moves);

  // One block's bytes, of any tier, in the order of the device's work. False: its content was lost.
  bool read_block(int group, request::Place place, std::span<std::byte> out);
  void write_block(int group, BlockId block, std::span<const std::byte> in);

  // Device blocks (group, block) whose content got lost; they stay so until clear_lost().
  bool is_lost(int group, BlockId block) const { return lost_.contains({group, block.value}); }
  bool any_lost() const { return !lost_.empty(); }
  void clear_lost(int group, BlockId block) { lost_.erase({group, block.value}); }
  void clear() { lost_.clear(); }

 private:
  struct Group {
    std::shared_ptr<std::byte> host;
    std::vector<bool> host_lost;  // per host block
    int64_t disk_offset = 0;
    std::vector<uint64_t> checksums;  // per disk block
  };
  explicit BlockMover(KvMemory& memory) : memory_(memory) {}

  bool move_directly(const request::BlockMove& move);
  std::byte* host_block(int group, BlockId block) const;
  std::byte* passing_block();
  void read(int group, request::Place place, std::byte* out, bool& lost);
  void write(int group, request::Place place, const std::byte* in, bool lost);

  KvMemory& memory_;
  std::vector<Group> groups_;
  std::shared_ptr<std::byte> block_;  // one block of any group in passing; null until it is needed
  std::set<std::pair<int, int32_t>> lost_;
  int64_t largest_ = 0;  // bytes of a block, of all groups
  int file_ = -1;
};

}  // namespace sluice::runtime
