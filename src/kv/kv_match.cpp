// Finding content again: KvManager::match and what it needs.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice::kv {

void KvManager::extend_keys(Sequence& sequence, std::span<const Token> tokens) const {
  const auto size = static_cast<size_t>(options_.block_size);
  for (size_t i = sequence.keys.size(); i < tokens.size() / size; ++i) {
    const PrefixKey& parent = i == 0 ? sequence.root : sequence.keys[i - 1];
    BlockContent block{.begin = static_cast<int>(i * size), .tokens = tokens.subspan(i * size, size)};
    if (sequence.request) {
      block.spans = sequence.request->spans;
      block.positions = &sequence.request->positions;
    }
    sequence.keys.push_back(child_key(parent, block));
  }
}

std::optional<request::Place> KvManager::find(int group, const PrefixKey& key) const {
  for (const request::Tier tier : {request::Tier::Device, request::Tier::Host, request::Tier::Disk}) {
    if (const std::optional<BlockId> block = pool(group, tier).find(key)) return request::Place{tier, *block};
  }
  return std::nullopt;
}

uint64_t KvManager::published_version() const {
  uint64_t version = 0;
  for (const request::Tier tier : {request::Tier::Device, request::Tier::Host, request::Tier::Disk})
    version += pool(0, tier).changes();
  return version;
}

PublishedKeys KvManager::published() const {
  PublishedKeys out{published_version(), {}};
  for (const request::Tier tier : {request::Tier::Device, request::Tier::Host, request::Tier::Disk})
    pool(0, tier).append_keys(out.keys);
  return out;
}

// A prefix of m blocks can be used where every group has the blocks that position m * block_size can see: all
// of them without a window, the last ones with one.
KvManager::Found KvManager::longest_match(const Sequence& sequence, int limit) const {
  std::vector<int> run(groups_.size());  // present blocks in a row, up to the one looked at
  Found best;
  for (int i = 0; i < limit; ++i) {
    bool usable = true, stateless = true, hopeless = false;
    for (int group = 0; group < groups(); ++group) {
      int& present = run[static_cast<size_t>(group)];
      present = find(group, sequence.keys[static_cast<size_t>(i)]) ? present + 1 : 0;
      const bool enough = present >= i + 1 - first_visible(group, (i + 1) * options_.block_size);
      usable &= enough;
      stateless &= enough || is_state(group);
      hopeless |= present == 0 && options_.groups[static_cast<size_t>(group)].window == 0 && !is_state(group);
    }
    if (hopeless) break;
    if (usable) best.usable = i + 1;
    if (stateless) best.without_states = i + 1;
  }
  return best;
}

int KvManager::match(SeqId seq, std::span<const Token> tokens) {
  Sequence& sequence = resident(seq);
  for (const std::vector<BlockId>& table : sequence.tables) SLUICE_CHECK(table.empty());
  if (!options_.prefix_cache || tokens.empty()) return 0;
  extend_keys(sequence, tokens);
  const int limit = (static_cast<int>(tokens.size()) - 1) / options_.block_size;
  const auto [blocks, without_states] = longest_match(sequence, limit);
  if (keeps_states()) mark_checkpoints(sequence, tokens, without_states);
  for (int group = 0; group < groups(); ++group) {
    if (attach(group, sequence, blocks)) continue;
    while (group-- > 0) {  // what an earlier group attached
      std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
      for (const BlockId block : table) {
        if (block != request::kNoBlock) pool(group, request::Tier::Device).unref(block, sequence.holder());
      }
      table.clear();
      sequence.given_back[static_cast<size_t>(group)] = 0;
    }
    return 0;
  }
  sequence.published = sequence.attached = blocks;
  announce(sequence);
  return blocks * options_.block_size;
}

bool KvManager::is_being_computed(SeqId seq) const {
  const Sequence& sequence = resident(seq);
  if (sequence.published >= sequence.announced) return false;
  return coming_.at(sequence.keys[static_cast<size_t>(sequence.published)]) > 1;  // not by itself alone
}

void KvManager::announce(Sequence& sequence) {
  sequence.announced = static_cast<int>(sequence.keys.size());
  for (int i = sequence.published; i < sequence.announced; ++i)
    ++coming_[sequence.keys[static_cast<size_t>(i)]];
}

// Takes back the announcements of blocks [begin, end), as far as there are any.
void KvManager::retract(const Sequence& sequence, int begin, int end) {
  for (int i = std::max(begin, sequence.published); i < std::min(end, sequence.announced); ++i) {
    const auto found = coming_.find(sequence.keys[static_cast<size_t>(i)]);
    if (--found->second == 0) coming_.erase(found);
  }
}

// Holds every found block first, on whichever tier, so that bringing one up cannot evict another.
bool KvManager::attach(int group, Sequence& sequence, int blocks) {
  const int first = first_visible(group, blocks * options_.block_size);
  std::vector<request::Place> found;
  int fresh = 0;  // blocks that count as newly held on the device
  for (int i = first; i < blocks; ++i) {
    found.push_back(*find(group, sequence.keys[static_cast<size_t>(i)]));
    const request::Place& place = found.back();
    fresh += place.tier != request::Tier::Device ||
             pool(group, request::Tier::Device).holders(place.block, sequence.holder()) == 0;
  }
  // Promised families stay within their promise; the others may not take what is promised.
  if (sequence.holder() == Ref::Unreserved && fresh > room(group, Ref::Unreserved)) return false;
  for (const request::Place& place : found) {
    pool(group, place.tier)
        .hold(place.block, place.tier == request::Tier::Device ? sequence.holder() : Ref::Unreserved);
  }
  std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
  table.assign(static_cast<size_t>(first), request::kNoBlock);
  sequence.given_back[static_cast<size_t>(group)] = first;
  for (int i = first; i < blocks; ++i) {
    const request::Place& place = found[static_cast<size_t>(i - first)];
    table.push_back(place.tier == request::Tier::Device
                        ? place.block
                        : promote(group, place, sequence.keys[static_cast<size_t>(i)], sequence.holder()));
  }
  return true;
}

BlockId KvManager::promote(int group, request::Place from, const PrefixKey& key, Ref holder) {
  const BlockId block = take(group, request::Tier::Device, holder);
  moves_.push_back({group, from, {request::Tier::Device, block}});
  pool(group, from.tier).forget(from.block);
  pool(group, from.tier).unref(from.block, Ref::Unreserved);
  pool(group, request::Tier::Device).publish(block, key);
  ++counters_.promoted;
  return block;
}

}  // namespace sluice::kv
