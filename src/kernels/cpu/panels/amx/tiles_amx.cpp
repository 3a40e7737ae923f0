// GEMMs over panels in rows with AMX tiles of bf16, and the same over a model of the tile instructions.
#include "kernels/cpu/panels/amx/gemm_tiles.h"
#include "kernels/cpu/panels/amx/tile_registers.h"

namespace sluice::kernels::cpu {

namespace {

// Rows of pairs by tokens: 16 x 16 words of 32 bits, of which `width` columns are stored.
inline void store_transposed(uint16_t* to, TileF (&square)[16], int64_t width) {
  if (width == 1) return _mm512_storeu_ps(to, square[0]);
  PanelAvx512Vnni::transpose(square);
#pragma GCC unroll 16
  for (int pair = 0; pair < 16; ++pair)
    _mm512_mask_storeu_ps(to + pair * 2 * width, TileFloats::mask(width), square[pair]);
}

template <class W>
void fill_tiles(const TileFill& fill) {
  for (int64_t piece = fill.begin; piece < fill.end; ++piece) {
    TileF high[16], low[16];
#pragma GCC unroll 16
    for (int token = 0; token < 16; ++token) {
      const bool valid = token < fill.tokens;
      const TileFloats columns(fill.x + (valid ? token * fill.stride : 0) + 32 * piece,
                               valid ? fill.cols - 32 * piece : 0);
      const __m512i words = W::rounded(columns.first, columns.second);
      high[token] = _mm512_castsi512_ps(words);
      low[token] = _mm512_castsi512_ps(columns.template low<W>(words));
    }
    const int64_t at = piece * 32 * fill.width;
    store_transposed(fill.to.high + at, high, fill.width);
    store_transposed(fill.to.low + at, low, fill.width);
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
