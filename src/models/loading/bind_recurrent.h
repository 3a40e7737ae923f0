// Weights of the mixers that keep a state.
#pragma once

#include "models/loading/binder.h"

namespace sluice::models {

ShortConvWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ShortConv& mixer);
DeltaWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const GatedDelta& mixer);
StateSpaceWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const StateSpace& mixer);
ChannelScanWeights bind_recurrent(Binder& binder, const ModelSpec& spec, const ChannelScan& mixer);

}  // namespace sluice::models
