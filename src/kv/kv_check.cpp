// KvManager::check: the invariants, counted from scratch.
#include <map>
#include <set>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice::kv {

void KvManager::check() const {
  for (const auto& [seq, sequence] : sequences_) check_sequence(sequence);
  for (int group = 0; group < groups(); ++group) check_holders(group);
  check_promises();
  std::unordered_map<PrefixKey, int, PrefixKeyHash> coming;
  for (const auto& [seq, sequence] : sequences_) {
    for (int i = sequence.published; i < sequence.announced; ++i)
      ++coming[sequence.keys[static_cast<size_t>(i)]];
  }
  SLUICE_CHECK(coming == coming_);
}

void KvManager::check_sequence(const Sequence& sequence) const {
  SLUICE_CHECK_EQ(sequence.tables.size(), groups_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    const std::vector<BlockId>& table = sequence.tables[group];
    if (sequence.out()) SLUICE_CHECK_EQ(sequence.tiers[group].size(), table.size());
    const int drafts = is_state(static_cast<int>(group)) ? sequence.drafts.count : 0;
    SLUICE_CHECK_LE(sequence.given_back[group] + drafts, static_cast<int>(table.size()));
    std::set<std::pair<request::Tier, BlockId>> own;
    for (size_t i = 0; i < table.size(); ++i) {
      const bool given_back = static_cast<int>(i) < sequence.given_back[group];
      const bool may_be_empty =
          is_state(static_cast<int>(group)) && i + 1 + static_cast<size_t>(drafts) < table.size();
      SLUICE_CHECK((table[i] == request::kNoBlock) == given_back ||
                   (may_be_empty && table[i] == request::kNoBlock));
      if (table[i] == request::kNoBlock) continue;
      const request::Tier tier = sequence.out() ? sequence.tiers[group][i] : request::Tier::Device;
      SLUICE_CHECK_EQ(sequence.out(), tier != request::Tier::Device);
      SLUICE_CHECK((own.emplace(tier, table[i]).second));  // no block twice in one table
    }
  }
}

// Every hold of a block is an entry of a table, and the other way round.
void KvManager::check_holders(int group) const {
  for (const request::Tier tier : {request::Tier::Device, request::Tier::Host, request::Tier::Disk}) {
    const BlockPool& blocks = pool(group, tier);
    blocks.check();
    std::vector<std::array<int, 2>> holders(static_cast<size_t>(blocks.capacity()));
    for (const auto& [seq, sequence] : sequences_) {
      const std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
      for (size_t i = 0; i < table.size(); ++i) {
        const request::Tier at =
            sequence.out() ? sequence.tiers[static_cast<size_t>(group)][i] : request::Tier::Device;
        if (table[i] == request::kNoBlock || at != tier) continue;
        SLUICE_CHECK_LT(table[i].value, blocks.capacity());
        const Ref holder = holder_of(group, sequence, i);
        ++holders[static_cast<size_t>(table[i].value)][static_cast<size_t>(holder)];
      }
    }
    for (int i = 0; i < blocks.capacity(); ++i) {
      const BlockId block{i};
      SLUICE_CHECK_EQ(blocks.holders(block, Ref::Unreserved), holders[static_cast<size_t>(i)][0]);
      SLUICE_CHECK_EQ(blocks.holders(block, Ref::Reserved), holders[static_cast<size_t>(i)][1]);
    }
  }
}

// Families stay within their promises, and all promises together within the pool.
void KvManager::check_promises() const {
  for (int group = 0; group < groups(); ++group) {
    const auto index = static_cast<size_t>(group);
    std::map<const Promise*, std::set<BlockId>> held;
    for (const auto& [seq, sequence] : sequences_) {
      if (!sequence.promise) continue;
      std::set<BlockId>& blocks = held[sequence.promise.get()];
      if (sequence.out()) continue;
      const std::vector<BlockId>& table = sequence.tables[index];
      for (size_t i = 0; i < table.size(); ++i)
        if (holder_of(group, sequence, i) == Ref::Reserved) blocks.insert(table[i]);
      blocks.erase(request::kNoBlock);
    }
    int sum = 0;
    for (const auto& [promise, blocks] : held) {
      SLUICE_CHECK_LE(static_cast<int>(blocks.size()), promise->blocks[index]);
      sum += promise->blocks[index];
    }
    SLUICE_CHECK_EQ(sum, groups_[index].promised);
    const BlockPool& device = pool(group, request::Tier::Device);
    SLUICE_CHECK_LE(sum + device.held_plainly(), device.capacity());
  }
}

}  // namespace sluice::kv
