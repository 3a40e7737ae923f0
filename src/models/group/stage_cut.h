// Which layers each stage of a model has (pipeline parallel): the slowest stage is to be as fast as it can be, by the weights
// that its layers read, or by how long they were seen to take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dist/communicator.h"
#include "models/spec.h"

namespace sluice::models {

// Weights that a step reads for a layer, all experts among them: what it takes a stage to decode, and about what it keeps.
int64_t layer_cost(const ModelSpec& spec, const LayerSpec& layer);

// What the first and the last stage compute beside their layers.
struct StageEnds {
  int64_t first = 0, last = 0;  // weights
};

// The layers of every stage. Of all ways to cut them so that no stage needs a layer of another, and each keeps every kind of
// KV and state that the model keeps, that whose costliest stage costs least, then that of the most equal stages; where there
// is none such, the one that would be without these conditions. REQUIRES: as many layers as stages.
std::vector<dist::Range> cut_stages(const ModelSpec& spec, int stages, const StageEnds& ends);

// What each layer and the ends of the stages cost, in any unit.
struct StageCosts {
  std::vector<double> layers;
  double first = 0, last = 0;  // beside the layers of the first and of the last stage
};

// Of the costliest of these stages.
double slowest_stage(const StageCosts& costs, std::span<const dist::Range> stages);

// As cut_stages(), by these costs, where no stage has more than `most_weights` of layers. Empty: there is no such cut.
// REQUIRES: a cost of each layer.
std::vector<dist::Range> cut_stages_by(const ModelSpec& spec, int stages, const StageCosts& costs,
                                       int64_t most_weights);

}  // namespace sluice::models
