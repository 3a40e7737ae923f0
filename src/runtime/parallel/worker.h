// A rank that follows another.
#pragma once

#include <vector>

#include "base/result.h"
#include "models/model.h"

namespace sluice::runtime {

// Does on this rank's part of the model what rank 0 does on its own, until that one ends the group. The error is this
// rank's, or names the one that was lost. REQUIRES: the model has a group, which another rank leads.
Status run_worker(const models::Model& model);

// The same, until rank 0 has measured that stages should have other layers: so many of each, by which this rank is to load
// the model again. Empty: the group has ended.
Result<std::vector<int>> run_worker_until_cut(const models::Model& model);

}  // namespace sluice::runtime
