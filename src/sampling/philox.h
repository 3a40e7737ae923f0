// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): random numbers as a pure
// function of a key and a counter. A sample is named by what it is for, so it does not matter which other samples
// were made before it, in which batch, or how often a sequence was preempted and computed again.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::sampling {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxBlock counter, uint64_t seed) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0], product1 = kMultiply1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

struct RandomAt {
  uint64_t seed = 0;
  uint32_t choice = 0;    // which of the n sequences of the request
  uint64_t position = 0;  // tokens generated before this one
};

// Uniform in [0, 1), all 53 bits random.
constexpr double uniform(const RandomAt& draw) {
  const PhiloxBlock block = philox(
      {static_cast<uint32_t>(draw.position), static_cast<uint32_t>(draw.position >> 32), draw.choice, 0},
      draw.seed);
  const uint64_t bits = (uint64_t{block[0]} << 32) | block[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace sluice::sampling
