// Moving blocks between device, host and disk.
#include <utility>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice::kv {
namespace {

int64_t place_key(request::Place place) {
  return int64_t{place.block.value} * request::kTiers + static_cast<int64_t>(place.tier);
}

request::Tier below(request::Tier tier) {
  return tier == request::Tier::Device ? request::Tier::Host : request::Tier::Disk;
}

}  // namespace

BlockId KvManager::take(int group, request::Tier tier, Ref holder) {
  const std::optional<BlockPool::Taken> taken = pool(group, tier).take(holder);
  SLUICE_CHECK(taken.has_value());
  if (taken->evicted) demote(group, {tier, taken->block}, *taken->evicted);
  return taken->block;
}

void KvManager::demote(int group, request::Place from, const PrefixKey& key) {
  for (request::Tier tier = from.tier; tier != request::Tier::Disk;) {
    tier = below(tier);
    if (pool(group, tier).find(key)) return;
    if (pool(group, tier).obtainable() == 0) continue;
    const BlockId block = take(group, tier, Ref::Unreserved);
    moves_.push_back({group, from, {tier, block}});
    pool(group, tier).publish(block, key);
    pool(group, tier).unref(block, Ref::Unreserved);
    ++counters_.demoted;
    return;
  }
  ++counters_.evicted;
}

std::optional<BlockId> KvManager::import(int group, const PrefixKey& key) {
  if (!options_.prefix_cache || find(group, key) || room(group, Ref::Unreserved) <= 0) return std::nullopt;
  const BlockId block = take(group, request::Tier::Device, Ref::Unreserved);
  pool(group, request::Tier::Device).publish(block, key);
  pool(group, request::Tier::Device).unref(block, Ref::Unreserved);
  ++counters_.imported;
  return block;
}

// Puts every block of the family where `targets` says. Holds pass from the old places to the new ones; each
// target came with one hold of its own, which ends here.
void KvManager::relocate(int group, std::span<const SeqId> family, const PlaceMap& targets) {
  const auto index = static_cast<size_t>(group);
  for (const SeqId seq : family) {
    Sequence& sequence = sequences_.at(seq);
    SLUICE_CHECK(!sequence.promise || sequence.drafts.count == 0);
    const auto holder_at = [&](request::Tier tier) {
      return tier == request::Tier::Device ? sequence.holder() : Ref::Unreserved;
    };
    std::vector<BlockId>& table = sequence.tables[index];
    std::vector<request::Tier> tiers(table.size(), request::Tier::Device);
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i] == request::kNoBlock) continue;
      const request::Place from{sequence.out() ? sequence.tiers[index][i] : request::Tier::Device, table[i]};
      const request::Place to = targets.at(place_key(from));
      pool(group, to.tier).hold(to.block, holder_at(to.tier));
      pool(group, from.tier).unref(from.block, holder_at(from.tier));
      table[i] = to.block;
      tiers[i] = to.tier;
    }
    if (sequence.out()) sequence.tiers[index] = std::move(tiers);
  }
}

bool KvManager::swap_out(std::span<const SeqId> family) {
  std::vector<PlaceMap> targets(groups_.size());
  for (int group = 0; group < groups(); ++group) {
    PlaceMap& map = targets[static_cast<size_t>(group)];
    for (const SeqId seq : family) {
      SLUICE_CHECK(!resident(seq).promise);
      for (const BlockId block : resident(seq).tables[static_cast<size_t>(group)]) {
        if (block != request::kNoBlock) map.try_emplace(place_key({request::Tier::Device, block}));
      }
    }
    const int lower =
        pool(group, request::Tier::Host).obtainable() + pool(group, request::Tier::Disk).obtainable();
    if (static_cast<int>(map.size()) > lower) return false;
  }
  for (int group = 0; group < groups(); ++group) {
    PlaceMap& map = targets[static_cast<size_t>(group)];
    for (auto& [from, to] : map) {
      to.tier = pool(group, request::Tier::Host).obtainable() > 0 ? request::Tier::Host : request::Tier::Disk;
      to.block = take(group, to.tier, Ref::Unreserved);
      const BlockId block{static_cast<int32_t>(from / request::kTiers)};
      moves_.push_back({group, {request::Tier::Device, block}, to});
    }
    counters_.swapped_out += map.size();
  }
  for (const SeqId seq : family) {
    Sequence& sequence = sequences_.at(seq);
    retract(sequence, 0, sequence.announced);
    sequence.announced = 0;
    for (const std::vector<BlockId>& table : sequence.tables) {
      sequence.tiers.emplace_back(table.size(), request::Tier::Device);
    }
  }
  for (int group = 0; group < groups(); ++group) {
    const PlaceMap& map = targets[static_cast<size_t>(group)];
    relocate(group, family, map);
    for (const auto& [from, to] : map) pool(group, to.tier).unref(to.block, Ref::Unreserved);
  }
  return true;
}

bool KvManager::swap_in(std::span<const SeqId> family, int spare) {
  SLUICE_CHECK(!family.empty());
  const Ref holder = sequences_.at(family.front()).holder();
  std::vector<PlaceMap> targets(groups_.size());
  for (int group = 0; group < groups(); ++group) {
    PlaceMap& map = targets[static_cast<size_t>(group)];
    for (const SeqId seq : family) {
      const Sequence& sequence = sequences_.at(seq);
      SLUICE_CHECK(sequence.out());
      const std::vector<BlockId>& table = sequence.tables[static_cast<size_t>(group)];
      for (size_t i = 0; i < table.size(); ++i) {
        if (table[i] == request::kNoBlock) continue;
        map.try_emplace(place_key({sequence.tiers[static_cast<size_t>(group)][i], table[i]}));
      }
    }
    if (static_cast<int>(map.size()) + spare > room(group, holder)) return false;
  }
  for (int group = 0; group < groups(); ++group) {
    PlaceMap& map = targets[static_cast<size_t>(group)];
    for (auto& [key, to] : map) {
      const request::Place from{static_cast<request::Tier>(key % request::kTiers),
                                BlockId{static_cast<int32_t>(key / request::kTiers)}};
      to = {request::Tier::Device, take(group, request::Tier::Device, holder)};
      moves_.push_back({group, from, to});
    }
    counters_.swapped_in += map.size();
    relocate(group, family, map);
    for (const auto& [key, to] : map) pool(group, request::Tier::Device).unref(to.block, holder);
  }
  for (const SeqId seq : family) {
    sequences_.at(seq).tiers.clear();
    sequences_.at(seq).published = 0;  // the new blocks have no content yet
  }
  return true;
}

}  // namespace sluice::kv
