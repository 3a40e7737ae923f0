// The forms of activations that GEMMs read besides f32: which of them a weight needs, and how tokens are made into them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/panels/kernels.h"
#include "kernels/cpu/panels/packed_weight.h"
#include "kernels/cpu/simd/kernel_table.h"
#include "kernels/weight.h"
#include "tensor/tensor.h"

namespace sluice::kernels::cpu {

// Null: the part is read as it is stored.
inline const uint8_t* panels_of(const Weight& weight, size_t part) {
  return weight.packed == nullptr ? nullptr
                                  : static_cast<const PackedWeight*>(weight.packed.get())->panels[part];
}

inline int64_t blocks_per_row(int64_t cols) {
  return (cols + 31) / 32;
}

// What multiplies.
struct Kernels {
  const KernelTable& stored;
  const PanelKernels& panels;
};

// The forms of activations that a weight's parts are multiplied with.
struct Needs {
  bool floats = false, blocks = false, split = false, panels = false, words = false, columns = false;

  Needs() = default;
  Needs(const Weight& weight, const Kernels& kernels) {
    for (size_t i = 0; i < weight.parts.size(); ++i)
      add(weight.parts[i].dtype, panels_of(weight, i), kernels);
  }

  Needs& operator|=(const Needs& other) {
    floats |= other.floats;
    blocks |= other.blocks;
    split |= other.split;
    panels |= other.panels;
    words |= other.words;
    columns |= other.columns;
    return *this;
  }

 private:
  void add(DType type, const uint8_t* packed, const Kernels& kernels) {
    if (packed == nullptr) {
      const bool splits = kernels.stored.split != nullptr && type == DType::BF16;
      blocks |= is_block(type);
      split |= splits;
      floats |= !is_block(type) && !splits;
      return;
    }
    const PanelLayout layout = kernels.panels.layout(type);
    words |= layout == PanelLayout::Words;
    columns |= layout == PanelLayout::Columns;
    panels |= layout != PanelLayout::Words && layout != PanelLayout::Columns;
  }
};

// The forms of x of one GEMM besides x itself; null where they are not needed.
struct Activations {
  const ActivationBlock* blocks = nullptr;
  const SplitBlock* split = nullptr;
  const PanelActivations* panels = nullptr;
  const ActivationTile* tiles = nullptr;  // instead of panels, for many tokens where the level has tiles
  TokenTiles bf16;                        // for panels in words
  const float* columns = nullptr;  // for panels in columns: ColumnTiles for each kMostTiledTokens tokens
};

// Memory that forms lie in while GEMMs read them. It grows and is kept.
struct ActivationScratch {
  std::vector<ActivationBlock> blocks;
  std::vector<SplitBlock> split;
  std::vector<PanelActivations> panels;
  std::vector<ActivationTile> tiles;
  std::vector<uint16_t> bf16;
  std::vector<float> columns;
};

template <class T>
T* grown(std::vector<T>& scratch, int64_t size) {
  if (scratch.size() < static_cast<size_t>(size)) scratch.resize(static_cast<size_t>(size));
  return scratch.data();
}

// Tile `tile` of the tokens of x, columns [32 begin, 32 end).
inline TileFill tile_fill(const TensorView& x, const TokenTiles& tiles, int64_t tile, int64_t begin,
                          int64_t end) {
  const int64_t first = tile * kTileTokens;
  const int64_t width = TokenTiles::width(x.dim(0));
  const int64_t offset = TokenTiles::offset(tile, 0, blocks_per_row(x.dim(1)), width);
  return {.x = x.at<float>() + first * x.stride[0],
          .stride = x.stride[0],
          .cols = x.dim(1),
          .tokens = std::min(kTileTokens, x.dim(0) - first),
          .width = width,
          .begin = begin,
          .end = end,
          .to = {tiles.words + offset}};
}

struct ColumnRange {
  int64_t begin, end;
};

// Calls piece(fill) for these columns of all tiles of x in columns: [tokens, cols] floats from `to` on.
template <class Piece>
void for_column_fills(const TensorView& x, const ColumnKernels& kernels, float* to, ColumnRange columns,
                      const Piece& piece) {
  for (int64_t first = 0; first < x.dim(0); first += kMostTiledTokens) {
    const ColumnTiles tiles{std::min(kMostTiledTokens, x.dim(0) - first), kernels.tile_tokens};
    for (int64_t tile = 0; tile < tiles.count(); ++tile) {
      const int64_t token = first + tiles.begin(tile);
      piece(ColumnFill{.x = x.at<float>() + token * x.stride[0],
                       .stride = x.stride[0],
                       .tokens = tiles.begin(tile + 1) - tiles.begin(tile),
                       .begin = columns.begin,
                       .end = columns.end,
                       .to = to + token * x.dim(1)});
    }
  }
}

// Multiplications; below, handing over to a thread costs more than the work.
inline constexpr int64_t kSmallestTask = 1 << 15;
// What is handed out to threads: two panels of one part, the last one of a part perhaps fewer rows.
inline constexpr int64_t kRowGroup = 2 * kPanelRows;

// Row groups [begin, end) of a weight.
struct RowGroups {
  int64_t begin, end;
};

int64_t row_groups(const Weight& weight);

}  // namespace sluice::kernels::cpu
