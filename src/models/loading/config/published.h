// Configs as their families publish them, brought to the keys that transformers writes. Keys that are there already stand.
#pragma once

#include "models/loading/config/config.h"

namespace sluice::models {

// Step 3.5: lists with entries for the layers that guess further tokens, mixtures by their numbers, heads and thetas of the
// layers with a window.
void read_published_step3(Config& config);

// MiniMax M3: flags of layers, and a group of keys for those that choose what they attend to.
void read_published_minimax_m3(Config& config);

// MiMo V2: flags of layers, a window that does not count the query's own position, a theta of its own for the layers with one.
void read_published_mimo_v2(Config& config);

}  // namespace sluice::models
