#include "server/core/connection_table.h"

#include <new>
#include <utility>

#include "base/check.h"

namespace sluice::server {

namespace {

// Connections that were told to leave and still have their file. The server keeps more files to spare.
constexpr size_t kMostLeaving = 32;

}  // namespace

std::optional<ConnectionTable::Place> ConnectionTable::take(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= static_cast<size_t>(limits_.all) + kMostLeaving) return std::nullopt;
  const auto owner = address.empty() ? owners_.end() : owners_.find(address);
  const bool own_full = owner != owners_.end() && owner->second.places >= limits_.of_address;
  const bool full = own_full || places_ >= limits_.all;
  const Order& candidates = own_full ? owner->second.idle : idle_;
  if (full && candidates.empty()) return std::nullopt;
  Place place{.number = last_ + 1, .leaving = {}};
  Entry& entry = add(address, place.number);
  last_ = place.number;
  count(entry, 1);
  begin_idle(entry);
  if (full) place.leaving = make_room(candidates);
  return place;
}

ConnectionTable::Entry& ConnectionTable::add(const std::string& address, uint64_t number) {
  Entry fresh;
  fresh.in_all = fresh.all_node.insert(fresh.all_node.end(), number);
  fresh.in_own = fresh.own_node.insert(fresh.own_node.end(), number);
  Entry& entry = entries_.emplace(number, std::move(fresh)).first->second;
  if (address.empty()) return entry;
  try {
    entry.owner = &*owners_.try_emplace(address).first;
  } catch (const std::bad_alloc&) {
    entries_.erase(number);
    throw;
  }
  ++entry.owner->second.entries;
  return entry;
}

uint64_t ConnectionTable::make_room(const Order& candidates) {
  const uint64_t number = candidates.front();
  Entry& entry = entries_.at(number);
  end_idle(entry);
  entry.stage = Stage::Leaving;
  count(entry, -1);
  return number;
}

void ConnectionTable::begin_idle(Entry& entry) {
  entry.stage = Stage::Idle;
  idle_.splice(idle_.end(), entry.all_node);
  if (entry.owner == nullptr) return;
  Order& own = entry.owner->second.idle;
  own.splice(own.end(), entry.own_node);
}

void ConnectionTable::end_idle(Entry& entry) {
  SLUICE_CHECK(entry.stage == Stage::Idle);
  entry.all_node.splice(entry.all_node.end(), idle_, entry.in_all);
  if (entry.owner != nullptr)
    entry.own_node.splice(entry.own_node.end(), entry.owner->second.idle, entry.in_own);
  entry.stage = Stage::Busy;
}

void ConnectionTable::count(const Entry& entry, int change) {
  places_ += change;
  if (entry.owner != nullptr) entry.owner->second.places += change;
}

void ConnectionTable::attach(uint64_t number, Handle connection) {
  const std::lock_guard lock(mutex_);
  entries_.at(number).connection = std::move(connection);
}

ConnectionTable::Handle ConnectionTable::find(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  return found == entries_.end() ? Handle() : found->second.connection;
}

std::vector<ConnectionTable::Handle> ConnectionTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Handle> handles;
  handles.reserve(entries_.size());
  for (const auto& [number, entry] : entries_) handles.push_back(entry.connection);
  return handles;
}

void ConnectionTable::idle(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(number);
  if (entry.stage == Stage::Busy) begin_idle(entry);
}

void ConnectionTable::busy(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(number);
  if (entry.stage == Stage::Idle) end_idle(entry);
  if (entry.stage == Stage::Leaving) count(entry, 1);
  entry.stage = Stage::Busy;
}

void ConnectionTable::leave(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(number);
  if (entry.stage == Stage::Idle) end_idle(entry);
  if (entry.stage != Stage::Leaving) count(entry, -1);
  if (entry.owner != nullptr && --entry.owner->second.entries == 0) owners_.erase(entry.owner->first);
  entries_.erase(number);
  if (last_awaited_ && number <= *last_awaited_) --awaited_;
}

void ConnectionTable::shut() {
  const std::lock_guard lock(mutex_);
  if (last_awaited_) return;
  last_awaited_ = last_;
  awaited_ = entries_.size();
}

size_t ConnectionTable::awaited() const {
  const std::lock_guard lock(mutex_);
  return last_awaited_ ? awaited_ : entries_.size();
}

}  // namespace sluice::server
