// Stages cut by how long their layers take.
#pragma once

#include <vector>

#include "base/result.h"
#include "models/model.h"

namespace sluice::runtime {

// Rank 0's, when the model is loaded: runs a few steps through all stages, and tells the other ranks where layers should lie
// otherwise. Returns how many each stage is to have, by which all ranks load the model again; empty: as they have them. That is
// so where the cut was given by hand, changes nothing (one stage, or stages that take turns), gains too little, or cannot be
// timed.
Result<std::vector<int>> measure_stages(const models::Model& model);

}  // namespace sluice::runtime
