// The share of a layer that a rank of a tensor-parallel group computes.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "models/placement.h"
#include "models/spec.h"

namespace sluice::models {

// Cuts the heads and widths of a layer of `spec` in place. An error names the layer by its number, and the count that does
// not divide or the part that cannot be cut.
Status cut_layer(LayerSpec& layer, const ModelSpec& spec, const Placement& placement, int64_t number);

// Whether the layer, as it is cut, norms rows that lie on several ranks.
bool norms_over_ranks(const LayerSpec& layer);

}  // namespace sluice::models
