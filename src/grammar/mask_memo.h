// Masks of states that matchers of one grammar come to again: inside a string, between the items of a list. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace sluice::grammar {

class MaskMemo {
 public:
  // Says all that a mask depends on.
  using Key = std::vector<int32_t>;
  static constexpr size_t kBytes = size_t{1} << 20;

  // Fills the mask where it is known, and says whether it excludes a token. Nothing: it is not known.
  std::optional<bool> find(const Key& key, std::span<int32_t> mask) const;
  // Where there is no room left for it, all others are dropped.
  void keep(const Key& key, std::span<const int32_t> mask, bool excludes);
  size_t bytes() const;

 private:
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    std::vector<int32_t> mask;
    bool excludes = false;
  };

  mutable std::mutex mutex_;
  std::unordered_map<Key, Entry, Hash> entries_;
  size_t bytes_ = 0;
};

}  // namespace sluice::grammar
