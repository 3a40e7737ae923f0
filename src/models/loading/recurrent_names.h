// Names of the mixers that keep a state.
#pragma once

#include "models/loading/names.h"

namespace sluice::models {

// Under the names of all families that have them: a file has one of each.
WeightNames with_recurrent(const WeightNames& names);
// GGUF keeps decay rates as they are, and their biases as those of a matrix that is not there.
WeightNames with_recurrent_gguf(const WeightNames& names);

}  // namespace sluice::models
