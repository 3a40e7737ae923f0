// A hash that nobody outside of the process can steer: tables keyed by what clients send use it, so that keys which were
// chosen to collide do not.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

struct HashKey {
  uint64_t low = 0, high = 0;
};

// SipHash-1-3.
uint64_t keyed_hash(std::string_view bytes, HashKey key);
// With the process's own key, which is random.
uint64_t keyed_hash(std::string_view bytes);

// For containers of the standard library.
struct KeyedHash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const { return keyed_hash(bytes); }
};

}  // namespace sluice
