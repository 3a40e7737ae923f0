// GEMMs over panels with AMX tiles of int8, and the same over a model of the tile instructions.
#include "kernels/cpu/panels/gemm_amx.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int64_t kTilesFrom = 5;  // tokens; below, a tile's sixteen cost more than VNNI on the few

struct PanelAmx : PanelAvx512Vnni {
  static constexpr bool kSignedCodes = true;
  static S panel_sums(const int32_t (&sums)[kPanelRows]) { return _mm512_load_si512(sums); }
};

// The layout that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Two sets of registers. Tiles 0 and 1: sums; 2 and 3: activations; 4 and 5: codes, both of 32 columns or of 16.
class AmxTiles {
 public:
  explicit AmxTiles(bool halves) {
    TileConfig config;
    for (int set = 0; set < 2; ++set) {
      config.rows[set] = config.rows[2 + set] = kTileTokens;
      config.rows[4 + set] = halves ? 4 : 8;
      config.row_bytes[set] = config.row_bytes[4 + set] = 64;
      config.row_bytes[2 + set] = halves ? 16 : 32;
    }
    // GCC 12 takes the instruction to read 8 bytes only and drops the stores to the rest.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int Set, int Columns>
  [[gnu::always_inline]] static void multiply(int32_t (&out)[kTileTokens][kPanelRows], const int8_t (*x)[32],
                                              int first, const uint8_t* codes) {
    const int8_t* from = x[0] + first;
    if constexpr (Set == 0) {
      _tile_zero(0);
      _tile_loadd(2, from, 32);
      _tile_loadd(4, codes, 64);
      _tile_dpbssd(0, 2, 4);
      _tile_stored(0, out, 64);
    } else {
      _tile_zero(1);
      _tile_loadd(3, from, 32);
      _tile_loadd(5, codes, 64);
      _tile_dpbssd(1, 3, 5);
      _tile_stored(1, out, 64);
    }
  }
};

}  // namespace

const PanelKernels& amx_panels() {
  static constexpr PanelKernels kKernels{gemm_panels_amx<PanelAmx, AmxTiles>, quantize_for_panels<PanelAmx>,
                                         quantize_into_tiles<PanelAmx>, kTilesFrom};
  return kKernels;
}

const PanelKernels& amx_model_panels() {
  static constexpr PanelKernels kKernels{gemm_panels_amx<PanelAmx, ModelTiles>, quantize_for_panels<PanelAmx>,
                                         quantize_into_tiles<PanelAmx>, kTilesFrom};
  return kKernels;
}

}  // namespace sluice::kernels::cpu
