// Whether bytes came back as they went: a file or a socket may have changed them. No help against those who mean to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice {

// A 64-bit multiply-rotate mix of every word: any changed bit changes it with all but certainty.
inline uint64_t checksum(std::span<const std::byte> bytes) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes.size();
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace sluice
