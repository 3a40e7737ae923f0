// The shortest list of best entries that holds a given mass, without sorting.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::sampling {

// Entries with a greater key are inside; of those with exactly this key the first `ties` are.
struct MassCut {
  float key = 0;
  size_t ties = 0;
};

// Entries in descending order of key are taken until their weights sum to at least `mass`; at least one is.
// Keys are not NaN, weights not negative, neither list is empty. Three passes over the entries whatever their
// order (a radix selection on the bits of the key).
MassCut cut_by_mass(std::span<const float> keys, std::span<const float> weights, double mass);

}  // namespace sluice::sampling
