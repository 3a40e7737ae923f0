// A model with fewer layers, to measure what a layer costs.
#pragma once

#include "models/model.h"

namespace sluice::lab {

// Whether the model's layers are alike and stand alone, so that a few of them tell what all of them cost.
bool can_be_cut(const models::ModelSpec& spec);

// The first layers of a model with its embedding and its output, on the weights of the model, which outlives it.
// REQUIRES: can_be_cut(model.spec()), 1 <= layers <= those of the model.
models::Model cut_model(const models::Model& model, int layers);

}  // namespace sluice::lab
