// GEMMs over panels in words with AMX tiles of bf16, and the same over a model of the tile instructions.
#include "kernels/cpu/panels/amx/gemm_tiles.h"
#include "kernels/cpu/panels/amx/tile_registers.h"

namespace sluice::kernels::cpu {

namespace {

template <class W>
void fill_tiles(const TileFill& fill) {
  for (int64_t piece = fill.begin; piece < fill.end; ++piece) {
    uint16_t* to = fill.to.words + piece * 64 * fill.width;
    for (int64_t token = 0; token < fill.width; ++token, to += 32) {
      const bool valid = token < fill.tokens;
      const TileFloats columns(fill.x + (valid ? token * fill.stride : 0) + 32 * piece,
                               valid ? fill.cols - 32 * piece : 0);
      const __m512i high = W::rounded(columns.first, columns.second);
      _mm512_storeu_si512(to, high);
      _mm512_storeu_si512(to + 32 * fill.width, columns.template low<W>(high));
    }
  }
}

}  // namespace

const TileKernels& amx_tiles() {
  static constexpr TileKernels kKernels{gemm_by_tiles<AmxTiles>, fill_tiles<AmxWords>};
  return kKernels;
}

const TileKernels& amx_model_tiles() {
  static constexpr TileKernels kKernels{gemm_by_tiles<ModelTiles>, fill_tiles<ModelWords>};
  return kKernels;
}

}  // namespace sluice::kernels::cpu
