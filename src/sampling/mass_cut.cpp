#include "sampling/mass_cut.h"

#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"

namespace sluice::sampling {
namespace {

// A level looks at `bits` bits of the key, from `shift` up; the levels go from the highest bit to the lowest.
struct Level {
  int shift;
  int bits;
};
constexpr std::array<Level, 3> kLevels = {{{21, 11}, {10, 11}, {0, 10}}};
constexpr size_t kBuckets = size_t{1} << 11;

// Bits in the order of the floats. Both zeros are one key.
uint32_t ordered(float key) {
  const uint32_t bits = std::bit_cast<uint32_t>(key + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

float from_ordered(uint32_t bits) {
  return std::bit_cast<float>((bits >> 31) != 0 ? bits & 0x7FFFFFFFU : ~bits);
}

struct Bucket {
  double mass = 0;
  size_t count = 0;
};

// The bucket, from the highest down, in which the mass is reached; the last that is not empty where it never
// is. `mass` becomes what is still missing when the bucket is entered.
uint32_t crossing(const std::array<Bucket, kBuckets>& buckets, double& mass) {
  size_t chosen = kBuckets;
  double missing = mass;
  for (size_t i = kBuckets; i-- > 0;) {
    if (buckets[i].count == 0) continue;
    chosen = i;
    mass = missing;
    if (buckets[i].mass >= missing) break;
    missing -= buckets[i].mass;
  }
  SLUICE_CHECK_LT(chosen, kBuckets);
  return static_cast<uint32_t>(chosen);
}

// How many entries of this key are needed for the missing mass.
size_t ties_for(uint32_t key, double missing, std::span<const float> keys, std::span<const float> weights) {
  size_t ties = 0;
  double sum = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (ordered(keys[i]) != key) continue;
    ++ties;
    sum += weights[i];
    if (sum >= missing) break;
  }
  return ties;
}

}  // namespace

MassCut cut_by_mass(std::span<const float> keys, std::span<const float> weights, double mass) {
  SLUICE_CHECK_EQ(keys.size(), weights.size());
  uint32_t prefix = 0;
  for (const Level& level : kLevels) {
    std::array<Bucket, kBuckets> buckets{};
    const int above = level.shift + level.bits;
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint32_t bits = ordered(keys[i]);
      if (above < 32 && bits >> above != prefix) continue;
      Bucket& bucket = buckets[(bits >> level.shift) & ((1U << level.bits) - 1)];
      bucket.mass += weights[i];
      ++bucket.count;
    }
    prefix = prefix << level.bits | crossing(buckets, mass);
  }
  return {.key = from_ordered(prefix), .ties = ties_for(prefix, mass, keys, weights)};
}

}  // namespace sluice::sampling
