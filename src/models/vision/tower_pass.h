// A pass of a vision tower over several tiles, and where it has come to.
#pragma once

#include <cstdint>
#include <vector>

#include "models/vision/vision.h"

namespace sluice::models {

// Patches in the order in which they are computed: those that become one embedding are neighbours, and so are those of a
// window. Embeddings then are in the order of their windows.
struct VisionTower::Layout {
  int rows = 0, columns = 0;
  std::vector<Place> places;     // behind the class token, where there is one
  std::vector<int32_t> ends;     // of the windows, in tokens; one where there are none
  std::vector<int32_t> reading;  // embeddings in reading order
  int64_t first = 0;             // token of the first patch
  int64_t tokens() const { return first + static_cast<int64_t>(places.size()); }
};

// Tokens of all tiles, one tile behind the other. A layer has two parts, each of which may run over some tokens at a time:
// queries, keys and values; then attention, which needs the keys of all, and the feed-forward.
struct VisionTower::Pass {
  std::vector<Layout> tiles;
  std::vector<int64_t> begins;          // of the tiles, and the end of the last
  std::vector<int32_t> windows, whole;  // ends of windows, and of tiles
  kernels::Memory x;                    // [tokens, dim]
  kernels::Memory angles;               // [tokens, pairs, 2]; empty without rotary positions
  kernels::Memory qkv;                  // [tokens, 3 dim], of the layer
  kernels::Memory keys, values;         // [windows, longest, heads, head dim], of the layer
  std::vector<kernels::Memory> out;     // of each tile: [embeddings, (1 + deep) output_dim]
  size_t layer = 0;
  bool has_keys = false;  // of the layer
  int64_t done = 0;       // tokens of the layer's part

  int64_t tokens() const { return begins.back(); }
  // Those of a tile behind its class token.
  TensorView patches(size_t tile) const {
    return x.view.rows(begins[tile] + tiles[tile].first, begins[tile + 1]);
  }
};

}  // namespace sluice::models
