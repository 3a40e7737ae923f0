// How layers choose the positions that they attend to.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace sluice::models {

// Chooses the positions that a layer attends to (kernels/chosen_attention.h): queries are made of the query latent, one key and a
// weight for each head of the layer's input. Both are turned by the layer's rope, in its own style.
struct Indexer {
  int chosen = 0;  // so many at most; 0: the layer attends to all that comes before
  int heads = 0;   // 0: the positions are those of the layer before
  int dim = 0;     // of its keys, cached beside the latents
  kernels::RopeStyle style = kernels::RopeStyle::NeoX;
};

// Chooses blocks of positions that a layer attends to (kernels/chosen_attention.h): queries and one key are made of the
// layer's input, normed and turned by its rope, as its heads are.
struct BlockIndexer {
  int chosen = 0;  // so many blocks at most; 0: the layer attends to all that comes before
  int size = 0;    // positions of a block
  int local = 1;   // of the chosen: the last ones, whatever they score
  int heads = 0;   // each chooses for kv_heads / heads heads of keys
  int dim = 0;     // of its keys, cached beside the others

  int64_t positions() const { return int64_t{chosen} * size; }
};

}  // namespace sluice::models
