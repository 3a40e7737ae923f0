#include "server/core/connection_table.h"

#include "base/check.h"

namespace sluice::server {

namespace {

// Connections that were told to leave and still have their file. The server keeps more files to spare.
constexpr size_t kMostLeaving = 32;

}  // namespace

std::optional<ConnectionTable::Place> ConnectionTable::take(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= static_cast<size_t>(limits_.all) + kMostLeaving) return std::nullopt;
  Place place;
  const auto owner = owners_.find(address);
  const bool own_full =
      counted(address) && owner != owners_.end() && owner->second.places >= limits_.of_address;
  if (own_full || places_ >= limits_.all) {
    place.leaving = make_room(own_full ? owner->second.idle : idle_);
    if (!place.leaving) return std::nullopt;
  }
  place.number = ++last_;
  Entry& entry = entries_[place.number];
  entry.address = address;
  count(entry, 1);
  begin_idle(place.number, entry);
  return place;
}

std::optional<uint64_t> ConnectionTable::make_room(const Order& candidates) {
  if (candidates.empty()) return std::nullopt;
  const uint64_t number = candidates.front();
  Entry& entry = entries_.at(number);
  end_idle(entry);
  entry.stage = Stage::Leaving;
  count(entry, -1);
  return number;
}

void ConnectionTable::begin_idle(uint64_t number, Entry& entry) {
  entry.stage = Stage::Idle;
  entry.in_all = idle_.insert(idle_.end(), number);
  if (!counted(entry.address)) return;
  Order& own = owners_[entry.address].idle;
  entry.in_own = own.insert(own.end(), number);
}

void ConnectionTable::end_idle(Entry& entry) {
  SLUICE_CHECK(entry.stage == Stage::Idle);
  idle_.erase(entry.in_all);
  if (counted(entry.address)) owners_.at(entry.address).idle.erase(entry.in_own);
  entry.stage = Stage::Busy;
}

void ConnectionTable::count(const Entry& entry, int change) {
  places_ += change;
  if (!counted(entry.address)) return;
  Owner& owner = owners_[entry.address];
  owner.places += change;
  if (owner.places == 0) owners_.erase(entry.address);
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
  if (entry.stage == Stage::Busy) begin_idle(number, entry);
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
