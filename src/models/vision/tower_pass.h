// A pass of a vision tower over several tiles, and where it has come to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
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
  // Of the patches among the tokens [begin, end).
  std::span<const Place> places_of(int64_t begin, int64_t end) const {
    const int64_t from = std::max<int64_t>(0, begin - first), to = std::max<int64_t>(0, end - first);
    return std::span(places).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
  }
};

// Tokens of all tiles, one tile behind the other. Each stage runs over some tokens at a time and ends before the next one
// begins. A layer has two: queries, keys and values; then attention, which needs the keys of all, and the feed-forward.
struct VisionTower::Pass {
  enum class Stage : uint8_t {
    Embed,  // patches
    Keys,
    Rows,
    Deep,    // embeddings of what the layer made
    Project  // embeddings of what the last layer made
  };
  std::vector<Tile> sources;
  std::vector<Layout> tiles;
  std::vector<int64_t> begins;          // of the tiles, and the end of the last
  std::vector<int32_t> windows, whole;  // ends of windows, and of tiles
  kernels::Memory x;                    // [tokens, dim]
  std::vector<float> turns;             // angles of the tokens that are embedded
  kernels::Memory angles;               // [tokens, pairs, 2]; empty without rotary positions
  kernels::Memory qkv;                  // [tokens, 3 dim], of the layer
  kernels::Memory keys, values;         // [windows, longest, heads, head dim], of the layer
  std::vector<kernels::Memory> out;     // of each tile: [embeddings, (1 + deep) output_dim]
  Stage stage = Stage::Embed;
  size_t layer = 0, deep = 0;  // deep: of the spec's, that the stage makes
  int64_t done = 0;            // tokens of the stage; embeddings where it makes those

  int64_t tokens() const { return begins.back(); }
  int64_t embeddings() const {
    int64_t sum = 0;
    for (const Layout& tile : tiles) sum += static_cast<int64_t>(tile.reading.size());
    return sum;
  }
};

}  // namespace sluice::models
