#include "grammar/mask_memo.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/check.h"

namespace sluice::grammar {

size_t MaskMemo::Hash::operator()(const Key& key) const {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int32_t)});
}

std::optional<bool> MaskMemo::find(const Key& key, std::span<int32_t> mask) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  SLUICE_CHECK_EQ(entry.mask.size(), mask.size());
  std::copy(entry.mask.begin(), entry.mask.end(), mask.begin());
  return entry.excludes;
}

void MaskMemo::keep(const Key& key, std::span<const int32_t> mask, bool excludes) {
  constexpr size_t kOfEntry = 128;  // what the table and its allocations take
  const size_t added = kOfEntry + (key.size() + mask.size()) * sizeof(int32_t);
  if (added > kBytes) return;
  const std::lock_guard lock(mutex_);
  if (bytes_ + added > kBytes) {
    entries_.clear();
    bytes_ = 0;
  }
  const bool is_new = entries_.try_emplace(key, Entry{{mask.begin(), mask.end()}, excludes}).second;
  if (is_new) bytes_ += added;
}

size_t MaskMemo::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace sluice::grammar
