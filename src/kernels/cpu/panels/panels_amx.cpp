// GEMMs over panels with AMX tiles of int8, and the same over a model of the tile instructions.
#include "kernels/cpu/panels/gemm_amx.h"
#include "kernels/cpu/panels/quantize.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {

namespace {

// Tokens. On a Sapphire Rapids, Q4_0: 32 tokens take 0.8 of VNNI's time, 16 about as long, 8 longer.
constexpr int64_t kTilesFrom = 24;
constexpr int64_t kModelledFrom = 5;

struct PanelAmx : PanelAvx512Vnni {
  static constexpr bool kSignedCodes = true;
  static __mmask16 first_rows(int64_t count) {
    return static_cast<__mmask16>(count >= kWidth ? 0xffff : (1 << count) - 1);
  }
  static F load_part(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(first_rows(count), from);
  }
  static void store_part(float* to, F value, int64_t count) {
    _mm512_mask_storeu_ps(to, first_rows(count), value);
  }
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

// Tiles 0 and 1: sums; 6: activations; 7: codes, both of 32 columns or of 16.
class AmxTiles {
 public:
  explicit AmxTiles(bool halves) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = kTileTokens;
      config.row_bytes[tile] = 64;
    }
    config.row_bytes[6] = halves ? 16 : 32;
    config.rows[7] = halves ? 4 : 8;
    // GCC 12 takes the instruction to read 8 bytes only and drops the stores to the rest.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  // The instructions take the number of a tile as a literal.
  template <int Half, int Columns>
  [[gnu::always_inline]] void multiply(int32_t (&out)[kTileTokens][kPanelRows], const int8_t (*x)[32],
                                       int first, const uint8_t* codes) {
    asm volatile(
        "tilezero %%tmm%c5\n"
        "tileloadd (%0,%1,1), %%tmm6\n"
        "tileloadd (%2,%3,1), %%tmm7\n"
        "tdpbssd %%tmm7, %%tmm6, %%tmm%c5\n"
        "tilestored %%tmm%c5, (%4,%3,1)\n"
        :
        : "r"(x[0] + first), "r"(int64_t{32}), "r"(codes), "r"(int64_t{64}), "r"(&out), "i"(Half)
        : "memory");
  }
};

}  // namespace

const PanelKernels& amx_panels() {
  static const PanelKernels kKernels{gemm_panels_amx<PanelAmx, AmxTiles>, quantize_for_panels<PanelAmx>,
                                     quantize_into_tiles<PanelAmx>, kTilesFrom, &amx_tiles()};
  return kKernels;
}

const PanelKernels& amx_model_panels() {
  static const PanelKernels kKernels{gemm_panels_amx<PanelAmx, ModelTiles>, quantize_for_panels<PanelAmx>,
                                     quantize_into_tiles<PanelAmx>, kModelledFrom, &amx_model_tiles()};
  return kKernels;
}

}  // namespace sluice::kernels::cpu
