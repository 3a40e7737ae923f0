// SHA-256 (FIPS 180-4), for content keys and checksums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  // The digest of everything so far; the object is spent afterwards.
  Sha256Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  uint64_t length_ = 0;  // bytes so far
};

Sha256Digest sha256(std::span<const std::byte> bytes);

}  // namespace sluice
